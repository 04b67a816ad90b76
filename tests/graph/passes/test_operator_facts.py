"""The table of operator facts: rows of an operator are merged, each fact has one row, and the facts are
true.
"""

import pytest
import torch

from oneflow._graph.program import operators
from oneflow._graph.program.operators import Operator, facts_of

aten = torch.ops.aten


def test_an_operator_without_a_row_has_default_facts():
    assert facts_of(aten.exp.default) == Operator()


def test_rows_of_one_operator_are_merged():
    facts = facts_of(aten.zeros_like.default)
    assert (facts.fill, facts.reads_layout_only, facts.lifts) == (0, True, False)


def test_a_fact_that_two_rows_give_is_an_error(monkeypatch):
    monkeypatch.setattr(operators, "_ROWS", (*operators._ROWS, ("ones_like.default", Operator(fill=2))))
    with pytest.raises(ValueError, match="fill.*ones_like"):
        operators._table()


@pytest.mark.parametrize(
    "operator", sorted(operators.operators_that(lambda facts: facts.view == "one"), key=str), ids=str
)
def test_views_share_memory_with_their_argument(operator):
    x = torch.arange(6.0).reshape(1, 2, 3)
    arguments = {
        aten.view.default: ([6],),
        aten._unsafe_view.default: ([6],),
        aten.transpose.int: (0, 1),
        aten.permute.default: ([2, 1, 0],),
        aten.expand.default: ([4, 2, 3],),
        aten.slice.Tensor: (1, 0, 1),
        aten.select.int: (2, 1),
        aten.unsqueeze.default: (0,),
        aten.squeeze.dim: (0,),
        aten.as_strided.default: ([2], [1]),
    }
    source = x[0] if operator is aten.t.default else x
    assert (
        operator(source, *arguments.get(operator, ())).untyped_storage()._cdata == x.untyped_storage()._cdata
    )


@pytest.mark.parametrize(
    "operator", sorted(operators.operators_that(lambda facts: facts.written_statistics), key=str), ids=str
)
def test_schemas_do_not_say_that_batch_norm_writes_its_statistics(operator):
    arguments = [operator._schema.arguments[i] for i in facts_of(operator).written_statistics]
    assert [a.name for a in arguments] == ["running_mean", "running_var", "training"]
    assert not any(a.alias_info is not None and a.alias_info.is_write for a in arguments)
