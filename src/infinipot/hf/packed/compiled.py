"""Attention of one token to float32 slots, compiled for the processor at hand by llvmlite: an extra.

ggml's takes the exponential of one score at a time, and reads an entry again for every query head; here the
heads of a group share it. ggml's threads call both functions as nodes of a graph: `attend` for a share of the
slots, then `merge` for some heads. `ggml_flash_attn_ext` is the twin without llvmlite.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_float
from functools import cache
from typing import Any

import torch
from llvmlite import binding, ir
from torch import Tensor

from infinipot.hf.packed.ggml import KINDS, Graph
from infinipot.hf.packed.modules import buffer

PARTS = 64  # shares of the slots at most: further threads wait
LANES = 16  # scores whose exponentials are taken at once; LLVM cuts vectors to the processor's own
LEAST = -126.0  # of a power of two: less is nothing
NONE = -1e30  # less than any score
FAST = ("fast",)  # sums in any order, as vectors have them
INT, FLOAT, POINTER, WORD = ir.IntType(64), ir.FloatType(), ir.PointerType(), ir.IntType(32)


class Attention:
    """The functions for heads of one size, so many query heads to a key, and a scale."""

    def __init__(self, size: int, group: int, scale: float) -> None:
        binding.check_jit_execution()  # else the first call would crash, as in a hardened service
        self.size, self.group = size, group
        module = ir.Module()
        _attend(_Code(module, "attend"), size, group, scale * math.log2(math.e))
        _merge(_Code(module, "merge"), size, group)
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        features = binding.get_host_cpu_features().flatten()
        target = binding.Target.from_default_triple()
        machine = target.create_target_machine(binding.get_host_cpu_name(), features, opt=3)
        built = binding.parse_assembly(str(module))
        passes = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
        passes.getModulePassManager().run(built, passes)
        self._engine = binding.create_mcjit_compiler(built, machine)  # holds the code
        self._engine.finalize_object()
        self.functions = [self._engine.get_function_address(name) for name in ("attend", "merge")]

    def add(self, graph: Graph, *tensors: Tensor) -> None:
        """Add it to a graph: what `given` wants, which whoever runs the graph keeps alive."""
        given = self.given(*tensors)
        for function in self.functions:
            node = KINDS[torch.float32], 1, 1, 1, 1, None, 0, function, -1, given.data_ptr()
            graph.apply("ggml_custom_4d", *node, out=given)  # nothing is written there, but it is held

    def given(self, queries: Tensor, keys: Tensor, values: Tensor, out: Tensor, last: Tensor) -> Tensor:
        """Return what the functions read [1, n]: where queries and `out` [1, m], keys and values [heads,
        slots, size], the last slot's number and room of their own lie; how many slots and heads there are."""
        heads, slots, _ = keys.shape
        sizes = self.group * (slots + LANES), PARTS * heads * self.group * (self.size + 2)
        room = [buffer("attention", number, 1, size) for number, size in enumerate(sizes)]
        tensors = queries, keys, values, *room, out, last
        return torch.tensor([[*(one.data_ptr() for one in tensors), slots, heads]], device="cpu")


@cache
def attention(size: int, group: int, scale: float) -> Attention:
    """Return the compiled functions, made once."""
    return Attention(size, group, scale)


def _attend(code: "_Code", size: int, group: int, scale: float) -> None:
    """Write the sums of values [size], the largest score and the weights' sum of every head, for a share."""
    to, groups = code.to, range(group)
    queries, keys, values, scores, parts, _, last = (code.pointer(index) for index in range(7))
    capacity, heads = code.number(7), code.number(8)
    count, nth = to.add(to.load(last, typ=INT), INT(1)), code.less(code.nth, INT(PARTS))
    lanes = to.sdiv(to.add(count, to.sub(to.mul(nth, INT(LANES)), INT(1))), to.mul(nth, INT(LANES)))
    share = to.mul(lanes, INT(LANES))
    sums, tops, masses = ([to.alloca(kind) for _ in groups] for kind in (_floats(size), FLOAT, FLOAT))
    with code.each(code.ith, INT(PARTS), INT(PARTS)) as part, code.each(INT(0), heads, INT(1)) as head:
        first = code.less(to.mul(part, share), count)
        end, head_at = code.less(to.add(first, share), count), to.mul(head, INT(group))
        asked = [code.vector(queries, to.mul(to.add(head_at, INT(one)), INT(size)), size) for one in groups]
        asked = [to.fmul(one, _all(scale, size), flags=FAST) for one in asked]
        for one in groups:
            code.begin(sums[one], tops[one], masses[one])
        row = [to.mul(INT(one), to.add(capacity, INT(LANES))) for one in groups]
        with code.each(first, end, INT(1)) as slot:
            key = code.vector(keys, to.mul(to.add(to.mul(head, capacity), slot), INT(size)), size)
            for one in groups:
                score = code.sum(to.fmul(key, asked[one], flags=FAST))
                code.put(score, scores, to.add(row[one], slot))
                to.store(code.more(to.load(tops[one], typ=FLOAT), score), tops[one])
        with code.each(first, end, INT(LANES)) as slot:
            for one in groups:
                at, top = to.add(row[one], slot), code.spread(to.load(tops[one], typ=FLOAT), LANES)
                code.put(code.power(to.fsub(code.vector(scores, at, LANES), top, flags=FAST)), scores, at)
        with code.each(first, end, INT(1)) as slot:
            value = code.vector(values, to.mul(to.add(to.mul(head, capacity), slot), INT(size)), size)
            for one in groups:
                weight = code.scalar(scores, to.add(row[one], slot))
                code.add(sums[one], to.fmul(value, code.spread(weight, size), flags=FAST))
                code.add(masses[one], weight)
        for one in groups:
            at = to.add(to.add(to.mul(part, to.mul(heads, INT(group))), head_at), INT(one))
            at = to.mul(at, INT(size + 2))
            for held, past in ((sums[one], 0), (tops[one], size), (masses[one], size + 1)):
                code.put(to.load(held, typ=held.type.pointee), parts, to.add(at, INT(past)))
    to.ret_void()


def _merge(code: "_Code", size: int, group: int) -> None:
    """Write a head's output [size]: what all shares found, each as if its largest score were that of all."""
    to, parts, out = code.to, code.pointer(4), code.pointer(5)
    heads, nth = to.mul(code.number(8), INT(group)), code.less(code.nth, INT(PARTS))
    total, top, mass = to.alloca(_floats(size)), to.alloca(FLOAT), to.alloca(FLOAT)
    with code.each(code.ith, heads, code.nth) as head:
        code.begin(total, top, mass)
        with code.each(INT(0), nth, INT(1)) as part:
            at = to.mul(to.add(to.mul(part, heads), head), INT(size + 2))
            to.store(code.more(to.load(top, typ=FLOAT), code.scalar(parts, to.add(at, INT(size)))), top)
        with code.each(INT(0), nth, INT(1)) as part:
            at = to.mul(to.add(to.mul(part, heads), head), INT(size + 2))
            below = to.fsub(code.scalar(parts, to.add(at, INT(size))), to.load(top, typ=FLOAT), flags=FAST)
            fade = code.power(code.spread(below, size))
            code.add(total, to.fmul(code.vector(parts, at, size), fade, flags=FAST))
            weights = code.scalar(parts, to.add(at, INT(size + 1)))
            code.add(mass, to.fmul(weights, to.extract_element(fade, WORD(0)), flags=FAST))
        found = to.fdiv(to.load(total, typ=_floats(size)), code.spread(to.load(mass, typ=FLOAT), size))
        code.put(found, out, to.mul(head, INT(size)))
    to.ret_void()


def _floats(count: int) -> Any:
    return ir.VectorType(FLOAT, count)


def _all(value: float, count: int) -> Any:
    return ir.Constant(_floats(count), [c_float(value).value] * count)


class _Code:
    """A function of a node in the making; ggml gives it its thread's number, and how many there are."""

    def __init__(self, module: Any, name: str) -> None:
        kind = ir.FunctionType(ir.VoidType(), [POINTER, WORD, WORD, POINTER])
        self.function, self._module = ir.Function(module, kind, name), module
        self.to = ir.IRBuilder(self.function.append_basic_block())
        _, ith, nth, self._given = self.function.args
        self.ith, self.nth = self.to.sext(ith, INT), self.to.sext(nth, INT)

    def number(self, index: int) -> Any:
        return self.to.load(self.to.gep(self._given, [INT(index)], source_etype=INT), typ=INT)

    def pointer(self, index: int) -> Any:
        return self.to.inttoptr(self.number(index), POINTER)

    def begin(self, total: Any, top: Any, mass: Any) -> None:
        """Nothing was seen yet; LLVM holds all three in registers."""
        self.to.store(_all(0.0, total.type.pointee.count), total)
        self.to.store(FLOAT(NONE), top)
        self.to.store(FLOAT(0.0), mass)

    def add(self, held: Any, value: Any) -> None:
        self.to.store(self.to.fadd(self.to.load(held, typ=value.type), value, flags=FAST), held)

    def vector(self, base: Any, at: Any, count: int) -> Any:
        return self.scalar(base, at, _floats(count))

    def scalar(self, base: Any, at: Any, kind: Any = FLOAT) -> Any:
        return self.to.load(self.to.gep(base, [at], source_etype=FLOAT), typ=kind, align=4)

    def put(self, value: Any, base: Any, at: Any) -> None:
        self.to.store(value, self.to.gep(base, [at], source_etype=FLOAT), align=4)

    def spread(self, value: Any, count: int) -> Any:
        """Return a vector that has the value everywhere."""
        nothing = ir.Constant(_floats(count), ir.Undefined)
        zeros = ir.Constant(ir.VectorType(WORD, count), [0] * count)
        return self.to.shuffle_vector(self.to.insert_element(nothing, value, WORD(0)), nothing, zeros)

    def less(self, one: Any, other: Any) -> Any:
        return self.to.select(self.to.icmp_signed("<", one, other), one, other)

    def more(self, one: Any, other: Any) -> Any:
        return self.to.select(self.to.fcmp_ordered(">", one, other, flags=FAST), one, other)

    def sum(self, vector: Any) -> Any:
        name = f"llvm.vector.reduce.fadd.v{vector.type.count}f32"
        return self._call(name, FLOAT, FLOAT(0.0), vector)

    def _call(self, name: str, kind: Any, *values: Any) -> Any:
        known = ir.FunctionType(kind, [value.type for value in values])
        found = self._module.globals.get(name) or ir.Function(self._module, known, name)
        return self.to.call(found, values, fastmath=FAST)

    def power(self, x: Any) -> Any:
        """Return 2 to the power of a vector up to 0: whole powers in the exponent, the rest by its series."""
        count, to = x.type.count, self.to
        words, x = ir.VectorType(WORD, count), self.more(x, _all(LEAST, count))
        whole = self._call(f"llvm.rint.v{count}f32", x.type, x)
        rest, found = to.fsub(x, whole, flags=FAST), _all(0.0, count)
        for power in range(6, -1, -1):
            term = _all(math.log(2) ** power / math.factorial(power), count)
            found = to.fadd(to.fmul(found, rest, flags=FAST), term, flags=FAST)
        whole = to.shl(to.fptosi(whole, words), ir.Constant(words, [23] * count))
        return to.bitcast(to.add(to.bitcast(found, words), whole), x.type)

    @contextmanager
    def each(self, first: Any, end: Any, step: Any) -> Iterator[Any]:
        """Repeat what is added meanwhile, for numbers from `first` up to `end`."""
        to, before = self.to, self.to.block
        asks, body, done = (self.function.append_basic_block() for _ in range(3))
        to.branch(asks)
        to.position_at_end(asks)
        number = to.phi(INT)
        number.add_incoming(first, before)
        to.cbranch(to.icmp_signed("<", number, end), body, done)
        to.position_at_end(body)
        yield number
        number.add_incoming(to.add(number, step), to.block)
        to.branch(asks)
        to.position_at_end(done)
