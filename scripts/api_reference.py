"""The public names of the Python package in Markdown, from its sources: nothing is imported."""
import ast
import pathlib
import re
import textwrap

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python" / "ulpscope"
# "name:   text" of an argument, with more text below it further in.
_ENTRY = re.compile(r"^(\w+(?:, \w+)*): +(\S.*)$")


def _homes() -> dict[str, str]:
    """Module per public name: what the package imports at once, and its _HOME."""
    result: dict[str, str] = {}
    for statement in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        if isinstance(statement, ast.ImportFrom) and statement.level == 1:
            result |= {alias.name: str(statement.module) for alias in statement.names}
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "_HOME":
            return result | {
                name: module for module, names in ast.literal_eval(statement.value).items() for name in names.split()
            }
    raise AssertionError("_HOME is not in ulpscope/__init__.py")


def _of_torch() -> dict[str, str]:
    """The same for ulpscope.torch."""
    body = ast.parse((PACKAGE / "torch" / "__init__.py").read_text()).body
    imports = [each for each in body if isinstance(each, ast.ImportFrom) and each.level == 1]
    return {f"torch.{alias.name}": f"torch/{each.module}" for each in imports for alias in each.names}


def _paragraph(text: str) -> str:
    """A paragraph of a docstring; arguments become a list, lines further in stay as they are."""
    lines = text.splitlines()
    if _ENTRY.match(lines[0]):
        entries: list[str] = []
        for line in lines:
            found = _ENTRY.match(line)
            if found:
                names = ", ".join(f"`{name}`" for name in found[1].split(", "))
                entries.append(f"- {names}: {found[2]}")
            else:
                entries[-1] += " " + line.strip()
        return "\n".join(entries)
    if lines[0].startswith(">>> "):
        return f"```python\n{text}\n```"
    if all(line.startswith("    ") for line in lines):
        return "```text\n" + textwrap.dedent(text) + "\n```"
    return text


def _text(docstring: str | None) -> str:
    paragraphs = re.split(r"\n\s*\n", docstring or "")
    return "\n\n".join(_paragraph(each) for each in paragraphs if each.strip())


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    given = ast.unparse(node.args)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({given}){returns}"
    if len(line) > 100 and given:
        # One argument per line: split where no bracket is open.
        parts, depth = [""], 0
        for character in given:
            depth += (character in "([{") - (character in ")]}")
            if character == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += character
        line = f"{name}(\n" + "".join(f"    {part.strip()},\n" for part in parts) + f"){returns}"
    return f"```python\n{line}\n```"


def _is_property(node: ast.FunctionDef) -> bool:
    return any(getattr(each, "id", "") in ("property", "cached_property") for each in node.decorator_list)


def _described(name: str, node: ast.AST) -> str:
    text = f"## `ulpscope.{name}`\n\n"
    if isinstance(node, ast.FunctionDef):
        return text + _signature(node, name) + "\n\n" + _text(ast.get_docstring(node)) + "\n"
    if not isinstance(node, ast.ClassDef):
        return text + f"```python\n{ast.unparse(node)}\n```\n"
    text += _text(ast.get_docstring(node)) + "\n"
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            own = f"`{each.name}`" if _is_property(each) else _signature(each, each.name)
            text += f"\n### {each.name}\n\n{own}\n\n{_text(ast.get_docstring(each))}\n"
    return text


def reference() -> str:
    """All public names, sorted as people look for them: functions first."""
    functions, classes, others = [], [], []
    for name, module in sorted((_homes() | _of_torch()).items()):
        for node in ast.parse((PACKAGE / f"{module}.py").read_text()).body:
            target = getattr(node, "target", None) or (node.targets[0] if isinstance(node, ast.Assign) else None)
            if name.rpartition(".")[2] in (getattr(node, "name", None), getattr(target, "id", None)):
                kind = functions if isinstance(node, ast.FunctionDef) else classes if isinstance(node, ast.ClassDef) else others
                kind.append(_described(name, node))
                break
        else:
            raise AssertionError(f"ulpscope.{name} is not in ulpscope/{module}.py")
    return "\n".join([*functions, *classes, *others])
