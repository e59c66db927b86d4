"""Style of a report's page: on a desk, on a phone, on dark and on printed paper"""

from typing import Final

CSS: Final = """
:root { --paper: #ffffff; --ink: #1a202c; --faint: #52606d; --grid: #d9dee4; --panel: #f6f8fa;
  --good: #00734f; --bad: #b34700; --open: #7a5200; --good-paper: #e0f4ec; --bad-paper: #fdeade;
  --open-paper: #fdf3d7; --differs-paper: #fff4cc; --link: #00568a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e6e9ed; --faint: #a3adb8;
  --grid: #333c46; --panel: #1c2228; --good: #4cd6a5; --bad: #ff9a5c; --open: #f3c552;
  --good-paper: #12382c; --bad-paper: #43240f; --open-paper: #3d3110; --differs-paper: #453a12;
  --link: #6cb8ea; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main { max-width: 1180px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 28px; }
.kind { margin: 0; color: var(--faint); letter-spacing: .04em; }
h1 { margin: 2px 0 8px; font-size: 30px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 0 0 12px; padding-top: 20px; font-size: 21px; border-top: 1px solid var(--grid); }
h3 { margin: 18px 0 6px; font-size: 15px; overflow-wrap: anywhere; }
section { margin-top: 26px; scroll-margin-top: 8px; }
.words { margin: 0 0 14px; }
.word { display: inline-block; padding: 2px 12px; border-radius: 14px; background: var(--panel);
  font-weight: 650; }
.good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
td.good, td.bad { font-weight: 650; }
.word.good { background: var(--good-paper); } .word.bad { background: var(--bad-paper); }
.word.open { background: var(--open-paper); } td.differs { background: var(--differs-paper); }
.facts { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 0 0 14px; }
.facts div { min-width: 0; } dt { color: var(--faint); font-size: 12px; } dd { margin: 0;
  overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 6px 18px; }
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 3px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
  gap: 8px 32px; align-items: start; }
figure { margin: 0; max-width: 600px; min-width: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif !important; }
figcaption { color: var(--faint); font-size: 13px; margin-top: 4px; }
.wide { overflow-x: auto; margin: 0 0 14px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 14px 4px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--grid); white-space: nowrap; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 260px; max-width: 520px; }
th { color: var(--faint); font-weight: 600; border-bottom-color: var(--faint); }
th.number, td.number { text-align: right; }
td.differs { padding-left: 6px; }
.note { margin: 6px 0; color: var(--faint); max-width: 84ch; overflow-wrap: anywhere; }
.note.warning { color: var(--ink); padding-left: 12px; border-left: 3px solid #e69f00; }
details { margin: 10px 0; } summary { cursor: pointer; font-weight: 600; }
main { padding-bottom: 60px; }
@media (max-width: 560px) { header, main { padding-left: 14px; padding-right: 14px; }
  h1 { font-size: 24px; } body { font-size: 14px; } th, td { padding-right: 10px; } }
@media print { :root { --paper: #ffffff; --ink: #000000; --faint: #444444; --grid: #cccccc; }
  body { font-size: 10pt; } nav { display: none; } header, main { max-width: none; padding: 0; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .wide { overflow: visible; } td { white-space: normal !important; } a { color: inherit; }
  .figures { grid-template-columns: 1fr 1fr; } }
"""
