"""What tensor parallelism in one, two and three dimensions sends, per matrix product Y = X W on P ranks.

* 1-D (Megatron-LM, arXiv 1909.08053): of two products in a row the first weight is divided by columns, the second by
  rows. Only the second output is summed over the ranks, and on the way back the gradient of the first input, each by a
  ring all-reduce. Weights are divided by P; what goes in and comes out is whole on every rank.
* 2-D (SUMMA; Optimus, arXiv 2104.05343): P = q^2 ranks in a square; every matrix is divided into q^2 blocks. Blocks of
  X go along the rows of ranks and blocks of W along the columns; on the way back one operand of each of the two
  products goes the same way, and their results are summed the same way.
* 3-D (arXiv 2105.14450): P = p^3 ranks (i, j, l) in a cube; every matrix is divided by p^3. A rank gathers X_il from
  the p ranks that share it and W_lj from p others, multiplies, and Y_ij is summed and scattered over l. The next
  product uses the groups of j and l the other way round, so nothing is moved in between. X and W stay gathered for the
  backward.

Numbers are elements that one rank receives; times 4 for bytes of float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix product Y = X W: the numbers of elements of the input, the weight and the output."""

    x: float
    w: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What one rank receives in the forward and in the backward: elements, and messages in each direction of both."""

    forward: float
    backward: float
    messages: int

    @property
    def total(self) -> float:
        """Elements of forward and backward."""
        return self.forward + self.backward


def received_1d(products: Sequence[Product], ranks: int) -> Received:
    """Count what consecutive products with weights divided over a ring of ranks receive.

    Args:
        products: the products in a row, such as the two of an MLP; the outputs in between stay divided.
        ranks: the number of ranks, P.

    Returns:
        2 (P - 1) / P of the last output's elements in the forward, of the first input's in the backward.
    """
    hops = 2 * (ranks - 1)
    return Received(forward=hops * products[-1].y / ranks, backward=hops * products[0].x / ranks, messages=hops)


def received_2d(products: Sequence[Product], side: int) -> Received:
    """Count what products on a square of ranks receive.

    Args:
        products: the products.
        side: the ranks along a side of the square, q.

    Returns:
        (q - 1) / q^2 of |X| + |W| for each product in the forward, twice that in the backward.
    """
    forward = (side - 1) * sum(product.x + product.w for product in products) / side**2
    return Received(forward=forward, backward=2 * forward, messages=2 * (side - 1) * len(products))


def received_3d(products: Sequence[Product], side: int) -> Received:
    """Count what products on a cube of ranks receive.

    Args:
        products: the products.
        side: the ranks along an edge of the cube, p.

    Returns:
        (p - 1) / p^3 of |X| + |W| + |Y| for each product, in the forward and again in the backward.
    """
    each_way = (side - 1) * sum(product.x + product.w + product.y for product in products) / side**3
    return Received(forward=each_way, backward=each_way, messages=3 * (side - 1) * len(products))


def mlp_products(tokens: int, hidden: int) -> tuple[Product, Product]:
    """Return the two products of a transformer's MLP, h -> 4 h -> h.

    Args:
        tokens: the number of rows of the input, T.
        hidden: the width of the model, h.
    """
    narrow, wide, weight = tokens * hidden, 4 * tokens * hidden, 4 * hidden * hidden
    return Product(x=narrow, w=weight, y=wide), Product(x=wide, w=weight, y=narrow)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSplit:
    """A way to divide products over ranks. `divides_activations`: inputs and outputs are divided by P, too."""

    name: str
    received: Received
    divides_activations: bool


def tensor_splits(products: Sequence[Product], ranks: int) -> tuple[TensorSplit, ...]:
    """Return the ways in which a number of ranks can divide products.

    Args:
        products: the products in a row.
        ranks: the number of ranks.

    Returns:
        `1-D`; `2-D` if `ranks` is a square and `3-D` if it is a cube, above 1; none for one rank.
    """
    if ranks < 2:
        return ()
    splits = [TensorSplit(name="1-D", received=received_1d(products, ranks), divides_activations=False)]
    for dimensions, count in ((2, received_2d), (3, received_3d)):
        side = round(ranks ** (1 / dimensions))
        if side**dimensions == ranks:
            splits.append(TensorSplit(name=f"{dimensions}-D", received=count(products, side), divides_activations=True))
    return tuple(splits)
