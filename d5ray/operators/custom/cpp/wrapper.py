"""The C++ around a user's class: a C interface for its types, its constructor, its methods"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template
from typing import final

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.custom.cpp.element_types import element
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

# Arguments of the constructor, by their type in Python: as they come in, as they are given on.
_PASSED = {bool: "bool", int: "int64_t", float: "double", str: "const char *"}
_KINDS = {bool: "bool", int: "binding::integer", float: "double", str: "const char *"}
_TAKEN = {bool: "a{0}", int: "binding::integer{{a{0}}}", float: "a{0}", str: "a{0}"}
_CLASS = re.compile(r"(::)?[A-Za-z_]\w*(::[A-Za-z_]\w*)*\s*(<.*>)?")


@final
@dataclass(frozen=True)
class Interface:
    """An operator from outside: its class, its tensors, the kinds of its arguments."""

    name: str
    inputs: tuple[TensorDescriptor, ...]
    outputs: tuple[TensorDescriptor, ...]
    arguments: tuple[type, ...]

    def code(self, source: str, included: str) -> str:
        """The wrapper of a class that stands in the text `source`, which `#include` calls `included`.

        Raises `ConfigurationError` where the text has no such class.
        """
        inputs = [element(self.name, each) for each in self.inputs]
        outputs = [element(self.name, each) for each in self.outputs]
        read = [f"const {each} *" for each in inputs]
        forward = [*read, *(f"{each} *" for each in outputs)]
        kept = [f"const {each} *" for each in outputs]
        backward = [*kept, *read, *kept, *(f"{each} *" for each in inputs)]
        return "\n".join(
            [
                "#include <deep500/binding.h>",
                f'#include "{included}"',
                "namespace binding = deep500::binding;",
                f"using Op = {self._class(source, (inputs or outputs or ['float'])[0])};",
                self._create(source),
                _method("forward", self.name, forward),
                _method("backward", self.name, backward),
                _method("forward_cuda", self.name, forward),
                _method("backward_cuda", self.name, backward),
                _REST,
            ]
        )

    def _class(self, source: str, first: str) -> str:
        if re.search(r"^[ \t]*D500_REGISTER_OP\s*\(", source, re.MULTILINE):
            return "binding::registered"
        if not _CLASS.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name!r} is no name of a class in C++: give one such as 'ipowop', or with its types, "
                "'ipowop<float>'"
            )
        plain = self.name.partition("<")[0].strip().rpartition("::")[2]
        if not re.search(rf"\b{plain}\b", source) and not re.search(r'#\s*include\s*"', source):
            known = re.findall(r"\b(?:class|struct)\s+([A-Za-z_]\w*)", source)
            raise ConfigurationError(
                f"the code of the operator {self.name} has no class {plain} ({nearest(plain, known)})"
            )
        if "<" in self.name:
            return self.name
        return f"std::remove_pointer_t<decltype(binding::chosen<{self.name}, {first}>(0))>"

    def _create(self, source: str) -> str:
        own = re.search(r"\bcreate_new_op\s*\(", source) is not None
        check = ""
        if own:
            made = "static_cast<Op *>(create_new_op(inputs, number_of_inputs, outputs, number_of_outputs))"
        elif self.arguments:
            taken = [_TAKEN[kind].format(index) for index, kind in enumerate(self.arguments)]
            made = f"new Op({', '.join(taken)})"
            kinds = ", ".join(_KINDS[kind] for kind in self.arguments)
            given = ", ".join(kind.__name__ for kind in self.arguments)
            check = (
                f"static_assert(std::is_constructible<Op, {kinds}>::value, "
                f'"d5ray: no constructor of {_quoted(self.name)} takes the arguments given, ({given})");'
            )
        else:
            made = "binding::constructed<Op>(inputs, number_of_inputs, outputs, number_of_outputs)"
        parameters = "".join(f", {_PASSED[kind]} a{index}" for index, kind in enumerate(self.arguments))
        return _CREATE.substitute(parameters=parameters, check=check, made=made)


def _method(method: str, name: str, types: Sequence[str]) -> str:
    cuda = method.endswith("_cuda")
    indices = range(len(types))
    signature = ", ".join(each.replace(" *", "*") for each in types)
    return _METHOD.substitute(
        method=method,
        has="true" if method == "forward" else f"binding::has_{method}<T>::value",
        stream=", void *stream" if cuda else "",
        keep_stream="binding::stream = stream;" if cuda else "",
        parameters="".join(f", {each}p{index}" for index, each in zip(indices, types, strict=True)),
        passed=", ".join(f"p{index}" for index in indices),
        passed_on="".join(f", p{index}" for index in indices),
        types=signature,
        message=f"d5ray: {method} of {_quoted(name)} must be public and take ({signature})",
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


_CREATE = Template("""
D500_EXPORTED int32_t d5_create(void **made, deep500::tensor_t *inputs, int32_t number_of_inputs,
                                deep500::tensor_t *outputs, int32_t number_of_outputs${parameters}) {
    ${check}
    return binding::guarded(0, [&] { *made = ${made}; });
}
""")

# A template, so that what a class lacks is not looked at.
_METHOD = Template("""
template <typename T>
int32_t call_${method}(T *op, int32_t threads${parameters}) {
    if constexpr (${has}) {
        static_assert(binding::takes_${method}<T(${types})>::value, "${message}");
        return binding::guarded(threads, [&] { op->${method}(${passed}); });
    } else {
        return 2;
    }
}
D500_EXPORTED int32_t d5_${method}(void *op, int32_t threads${stream}${parameters}) {
    ${keep_stream}
    return call_${method}(static_cast<Op *>(op), threads${passed_on});
}
""")

_REST = """
D500_EXPORTED void d5_destroy(void *op) {
    binding::guarded(0, [&] { delete static_cast<Op *>(op); });
}
D500_EXPORTED int32_t d5_report(void *op, void *data, int64_t *told) {
    return binding::guarded(0, [&] { *told = static_cast<Op *>(op)->report(data); });
}
D500_EXPORTED int32_t d5_abilities(void *op) {
    int32_t found = binding::has_backward<Op>::value ? 1 : 0;
    if (binding::has_forward_cuda<Op>::value && op && static_cast<Op *>(op)->supports_cuda()) found |= 2;
    if (binding::has_backward_cuda<Op>::value) found |= 4;
    return found;
}
D500_EXPORTED const char *d5_error() { return binding::message.c_str(); }
"""
