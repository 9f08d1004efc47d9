"""Products that share their input as one: queries, keys and values; gate and up.

For a few tokens reading the weights is all there is, and one large product reads them
better than three of different sizes. For many tokens products are as good apart, and what
follows reads their outputs better, so then each computes its own. The modules keep their
names, weights (views of one tensor) and places in the model; no model code changes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW = 64  # tokens up to which products are joint
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class Joint:
    """The weights of several linear modules, and their outputs for one input until all were asked for."""

    def __init__(self, modules: list[nn.Linear]) -> None:
        self.weight = torch.cat([module.weight.data for module in modules])
        self.bias = None
        if modules[0].bias is not None:
            self.bias = torch.cat([module.bias.data for module in modules])
        self.sizes = [module.out_features for module in modules]
        self.seen: Tensor | None = None  # the input of `parts`
        self.parts: tuple[Tensor, ...] = ()
        self.left = 0  # modules that have not asked yet

    def product(self, x: Tensor) -> Tensor:
        """Return the outputs of all modules side by side."""
        return F.linear(x, self.weight, self.bias)

    def output(self, x: Tensor, index: int) -> Tensor:
        """What the module of this index gives for x."""
        if self.seen is not x:
            self.parts = torch.split(self.product(x), self.sizes, dim=-1)
            self.seen, self.left = x, len(self.sizes)
        found = self.parts[index]
        self.left -= 1
        if self.left == 0:  # hold nothing between layers
            self.seen, self.parts = None, ()
        return found


class Part(nn.Linear):
    """One of the linear modules whose weights a `Joint` holds."""

    def __init__(self, of: nn.Linear, joint: Joint, index: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = of.in_features, of.out_features
        start = sum(joint.sizes[:index])
        rows = slice(start, start + of.out_features)
        self.weight = nn.Parameter(joint.weight[rows], requires_grad=False)
        bias = None if joint.bias is None else nn.Parameter(joint.bias[rows], requires_grad=False)
        self.register_parameter("bias", bias)
        self.joint, self.index = joint, index

    def forward(self, x: Tensor) -> Tensor:
        """As the plain module; for few tokens its siblings' outputs are computed on the way."""
        if x.shape[-2] > FEW:
            return F.linear(x, self.weight, self.bias)
        return self.joint.output(x, self.index)


def join(decoder: nn.Module) -> int:
    """Join what can be joined; return how many products are left of each kind's modules."""
    joined = 0
    for module in decoder.modules():
        for names in TOGETHER:
            found = [getattr(module, name, None) for name in names]
            if not plain_linear(found):
                continue
            joint = Joint(found)  # type: ignore[arg-type]  # checked
            for index, (name, plain) in enumerate(zip(names, found, strict=True)):
                setattr(module, name, Part(plain, joint, index))  # type: ignore[arg-type]
            joined += 1
            del found, plain, joint
            torch.cuda.empty_cache()  # else the next takes a piece of a larger block, whose rest nobody uses
    return joined


def plain_linear(modules: list[Any]) -> bool:
    """Plain linear modules of one input, device and type, that nothing hangs on."""
    if not all(type(module) is nn.Linear and type(module.weight.data) is Tensor for module in modules):
        return False
    # private: neither torch nor accelerate has a public word for what hangs on a module and runs with it
    if any(m._forward_hooks or m._forward_pre_hooks or hasattr(m, "_hf_hook") for m in modules):
        return False
    kinds = {(m.in_features, m.weight.device, m.weight.dtype, m.bias is None) for m in modules}
    return len(kinds) == 1
