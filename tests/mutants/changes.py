"""What may be wrong with a line of code: small changes of it, each of which some test should notice."""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
ARITHMETIC = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//",
    ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
NAMES = (
    {"sin", "cos"}, {"min", "max"}, {"minimum", "maximum"}, {"any", "all"}, {"floor", "ceil"},
    {"zeros", "ones"}, {"argmin", "argmax"}, {"amin", "amax"}, {"append", "extend"},
    {"startswith", "endswith"}, {"tril", "triu"}, {"xlabel", "ylabel"}, {"width", "height"},
)  # fmt: skip
OTHER = {
    a: b for pair in NAMES for a, b in zip(sorted(pair), sorted(pair)[::-1], strict=True)
}
# with arguments, and yet `x` may stand for it
CONVERSIONS = {"astype", "to", "clip", "clamp"}
# ruff misses these keywords where they are left out
LINTED = {"encoding", "strict"}


@dataclass(frozen=True)
class Change:
    """One change of one file: the text between two places, and what stands there instead."""

    path: str
    statement: int  # the line where its statement begins
    line: int
    last: int
    start: int
    end: int
    was: str
    now: str
    whole: bool  # outside of a function, where tests run it by importing the file
    digits: str

    def __str__(self):
        return f"{self.path}:{self.line}: {short(self.was)} → {short(self.now)}"

    def made(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.now.encode() + source[self.end :]


def short(code: str) -> str:
    """A piece of code in one line of at most 60 characters."""
    line = " ".join(code.split())
    return line if len(line) <= 60 else f"{line[:28]} … {line[-28:]}"


def changes(path: str, source: bytes) -> Iterator[Change]:
    """All changes of a file, in no order; each has digits that stay when lines above it move."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(first, last):
        begin = starts[first.lineno - 1] + first.col_offset
        return begin, starts[last.end_lineno - 1] + last.end_col_offset

    seen = {}
    for node, place, statement, inside in walk(ast.parse(source)):
        for first, last, now in of(node, lambda n: source[slice(*span(n, n))].decode()):
            start, end = span(first, last)
            was = source[start:end].decode()
            key = (path, place, was, now)
            seen[key] = seen.get(key, 0) + 1
            digits = hashlib.sha256(repr((*key, seen[key])).encode()).hexdigest()[:10]
            lines = (statement, first.lineno, last.end_lineno)
            yield Change(path, *lines, start, end, was, now, not inside, digits)


def walk(node, place="", statement=0, inside=False):
    """Every expression and statement that runs, but for annotations and what is said.

    With each the names around it, the line where its statement begins, and whether it is in a function.
    """
    if isinstance(node, ast.stmt):
        statement = node.lineno
    if isinstance(node, ast.expr | ast.stmt | ast.keyword | ast.comprehension):
        yield node, place, statement, inside
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "format_spec"):
            continue
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        body = name == "body" and hasattr(node, "name")
        around = f"{place}.{node.name}" if body else place
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_said(child):
                deeper = inside or (is_function and name == "body")
                yield from walk(child, around, statement, deeper)


def is_said(node):
    """Whether a node is a docstring, a formatted text, or the help of an argument, which is for people."""
    if isinstance(node, ast.JoinedStr) or getattr(node, "arg", None) == "help":
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def of(node, text):
    """The changes of one node: from where, to where, and the new text."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield node, node, f"(({text(left)}) {COMPARISONS[type(op)]} ({text(right)}))"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            if not (isinstance(left, ast.Constant) and isinstance(left.value, str)):
                yield node, node, f"(({text(left)}) {ARITHMETIC[type(op)]} ({text(right)}))"
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in ARITHMETIC:
            yield node, node, f"{text(target)} {ARITHMETIC[type(op)]}= ({text(value)})"
        case ast.BoolOp(op=op, values=[first, *others]):
            word = " or " if isinstance(op, ast.And) else " and "
            yield node, node, f"({word.join(f'({text(one)})' for one in (first, *others))})"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield node, node, f"({text(operand)})"
        case ast.Constant(value=value):
            yield from constant(node, value)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if isinstance(test, ast.Name | ast.Call | ast.Attribute):
                yield test, test, f"(not {text(test)})"
        case ast.comprehension(ifs=[test]):
            yield test, test, f"(not {text(test)})"
        case ast.Expr(value=ast.Call()):
            yield node, node, "pass"
        case ast.Call(func=func, args=args, keywords=keywords):
            yield from call(node, func, args, keywords, text)
        case ast.Name(id=name) if name in OTHER:
            yield node, node, OTHER[name]


def constant(node, value):
    """Another number, the opposite, or another word."""
    if isinstance(value, bool):
        yield node, node, str(not value)
    elif isinstance(value, int):
        yield node, node, str(value + 1)
    elif isinstance(value, float):
        yield node, node, repr(2 * value + 1)
    elif isinstance(value, str) and value.strip():
        yield node, node, repr(f"~{value}")  # of a pattern an added end may mean nothing


def call(node, func, args, keywords, text):
    """A call without one of its keywords, without its conversion, or of the other of two functions."""
    before = [text(a) for a in args]
    for left_out in keywords:
        if left_out.arg is not None and left_out.arg not in LINTED:
            kept = [f"{k.arg}={text(k.value)}" if k.arg else f"**{text(k.value)}"
                    for k in keywords if k is not left_out]  # fmt: skip
            yield node, node, f"{text(func)}({', '.join(before + kept)})"
    if isinstance(func, ast.Attribute):
        if func.attr in CONVERSIONS or not (args or keywords):
            yield node, node, f"({text(func.value)})"
        if func.attr in OTHER:
            yield func, func, f"({text(func.value)}).{OTHER[func.attr]}"
