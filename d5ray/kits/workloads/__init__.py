"""Workloads of single fields: readers of their data, metrics and events that judge them, and their losses

Detection, ranking, speech, text, translation, and acting in environments.
"""

from typing import Final

_HERE: Final = "d5ray.kits.workloads"

BRINGS: Final[dict[str, dict[str, str]]] = {
    "modules of metrics": {"workloads": f"{_HERE}.metrics"},  # and those in them
    "datasets that are made": {
        "keywords": f"{_HERE}.datasets.keywords:load_keywords",
        "keyword_sequences": f"{_HERE}.datasets.keyword_sequences:load_keyword_sequences",
        "shapes": f"{_HERE}.datasets.drawn_shapes:load_shapes",
        "clicks": f"{_HERE}.datasets.clicks:load_clicks",
        "translation": f"{_HERE}.datasets.translation:load_translation",
        "environment": f"{_HERE}.datasets.environment:load_environment",
    },
    "datasets of one's own files": {
        "text": f"{_HERE}.datasets.text:load_text",
        "stdlib": f"{_HERE}.datasets.text:load_stdlib",
        "tokens": f"{_HERE}.datasets.tokens:load_tokens",
        "tfrecord": f"{_HERE}.datasets.tfrecord:TFRecord",
        "webdataset": f"{_HERE}.datasets.webdataset:WebDataset",
    },
    "published datasets": {
        "wikitext": f"{_HERE}.datasets.text:load_wikitext",
        "speech_commands": f"{_HERE}.datasets.speech_commands:load_speech_commands",
        "coco": f"{_HERE}.datasets.coco:load_coco",
        "criteo": f"{_HERE}.datasets.criteo:load_criteo",
    },
    "metrics": {
        "mean_average_precision": f"{_HERE}.metrics.qualities:MeanAveragePrecision",
        "average_precision_50": f"{_HERE}.metrics.qualities:AveragePrecision50",
        "area_under_curve": f"{_HERE}.metrics.qualities:AreaUnderCurve",
        "test_return": f"{_HERE}.metrics.qualities:TestReturn",
        "label_error_rate": f"{_HERE}.metrics.qualities:LabelErrorRate",
        "bleu": f"{_HERE}.metrics.qualities:BLEU",
        "text_bits_per_byte": f"{_HERE}.metrics.qualities:TextBitsPerByte",
    },
    "metrics of other metrics": {"bits_per_byte": f"{_HERE}.metrics.bits_per_byte:BitsPerByte"},
    "events that record": {  # a metric's rows
        "mean_average_precision": "DetectionQuality(boxes)",
        "average_precision_50": "DetectionQuality(boxes)",
        "area_under_curve": "RankingQuality()",
        "test_return": "Play(name)",
        "label_error_rate": "SequenceErrors()",
        "bleu": "TranslationQuality()",
        "text_bits_per_byte": "TextCompression()",
    },
}
