"""A cell that differs on purpose fails if it differs in another way, and samples cover layouts and errors."""

import pytest
import torch
from planted import graph_class
from rows import recorded, row_of, statuses
from suite import Suite

import oneflow
from oneflow_autotest.parity.differences import is_same, same_text, summary

ADAMW = "oneflow.optim.AdamW"


def explained(name):
    return "some-row"


def test_the_known_difference_of_adamw_is_the_stored_one():
    assert statuses(Suite().row(ADAMW, "class"))["eager"] == "differs"


def test_an_optimizer_that_no_longer_trains_is_no_known_difference(monkeypatch):
    known = recorded(Suite(known={}).row(ADAMW, "class"))
    assert statuses(Suite(known=known).row(ADAMW, "class"))["eager"] == "differs"
    monkeypatch.setattr(oneflow.optim.AdamW, "step", lambda self, closure=None: None)
    row = Suite(known=known).row(ADAMW, "class")
    assert statuses(row)["eager"] == "fail"
    assert "differs in another way than adamw-default-wd" in row["cells"]["eager"]["detail"]


@pytest.mark.parametrize("name", ["oneflow.where", "oneflow.Tensor.where"])
def test_a_where_that_is_wrong_by_one_fails(name, monkeypatch):
    known = recorded(Suite(known={}).row(name, "function"))
    statuses_now = statuses(Suite(known=known).row(name, "function"))
    assert "fail" not in statuses_now.values()
    if name == "oneflow.where":
        where = oneflow.where
        monkeypatch.setitem(vars(oneflow), "where", lambda c, *a: where(c, *a) + 1 if a else where(c))
    else:
        where = torch.Tensor.where
        monkeypatch.setattr("suite.own_attribute", lambda cls, name: lambda *a: where(*a) + 1)
    failing = statuses(Suite(known=known).row(name, "function"))
    assert {failing["eager"], failing["dtypes"], failing["reference"]} == {"fail"}


def test_a_known_difference_fails_if_another_sample_differs_too():
    def of_vectors(x, *args, **kwargs):
        return x.exp() + (x.dim() == 1)

    def of_all(x, *args, **kwargs):
        return x.exp() + 1

    known = recorded(row_of("exp", explained, exp=of_all))
    assert statuses(row_of("exp", explained, known, exp=of_all))["eager"] == "differs"
    for wrong in (of_vectors, lambda x: x.exp() + 1.5, lambda x: x.exp() - 1, lambda x: x.exp().double() + 1):
        assert statuses(row_of("exp", explained, known, exp=wrong))["eager"] == "fail"


def test_a_known_difference_that_is_gone_passes():
    known = recorded(row_of("exp", explained, exp=lambda x: x.exp() + 1))
    assert statuses(row_of("exp", explained, known))["eager"] == "pass"


def test_an_accepted_call_is_known_with_its_result():
    def joined(tensors, dim=0):
        try:
            return torch.cat(tensors, dim)
        except (RuntimeError, IndexError, TypeError):
            return torch.ones(2)

    known = recorded(row_of("cat", explained, cat=joined))
    assert statuses(row_of("cat", explained, known, cat=joined))["errors"] == "differs"
    other = lambda tensors, dim=0: joined(tensors, dim) * 1.5
    assert statuses(row_of("cat", explained, known, cat=other))["errors"] == "fail"


def test_a_graph_is_never_a_known_difference():
    row = row_of("exp", explained, nn__Graph=graph_class(outputs=lambda t: t + 1))
    assert statuses(row)["graph"] == "fail" and "differences" not in row["cells"]["graph"]


def test_texts_are_equal_up_to_the_last_digits_of_floats():
    text = "values: 4 of 6 elements differ, largest distance 0.0026402, shape (2, 3), float32"
    assert same_text(text, text.replace("0.0026402", "0.0026403"))
    for other in ("0.0036402", "nan", "0"):
        assert not same_text(text, text.replace("0.0026402", other))
    assert not same_text(text, text.replace("4 of 6", "5 of 6"))
    assert not same_text(text, text.replace("float32", "float64"))


@pytest.mark.parametrize(
    "changed",
    [
        lambda t: t + 1,
        lambda t: -t,
        lambda t: t.flip(0),
        lambda t: t.double(),
        lambda t: t.reshape(3, 2),
        lambda t: t.where(t != 2, float("nan")),
    ],
)
def test_summaries_tell_results_apart(changed):
    t = torch.arange(6.0).reshape(2, 3)
    assert same_text(summary(t), summary(t * (1 + 1e-5)))
    assert not same_text(summary(t), summary(changed(t)))


def test_differences_are_the_same_only_for_the_same_samples():
    one = {"sample": "sample 0", "text": "t", "result": "r"}
    assert is_same([one], [dict(one)])
    assert not is_same([one], [one, one]) and not is_same([one], [one | {"sample": "sample 1"}])


def test_a_function_that_is_wrong_for_strided_tensors_fails():
    def of_memory(x):
        flat = torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), 0)
        return flat.exp()

    by_check = row_of("exp", exp=of_memory)["cells"]
    assert by_check["eager"]["status"] == by_check["gradient"]["status"] == "fail"
    assert "with_strides" in by_check["eager"]["script"]


def test_a_module_that_is_wrong_for_strided_tensors_fails():
    class Linear(torch.nn.Linear):
        def forward(self, x):
            return super().forward(torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), 0))

    assert statuses(row_of("nn.Linear", nn__Linear=Linear))["eager"] == "fail"


def test_a_module_is_checked_in_evaluation_mode():
    class BatchNorm1d(torch.nn.BatchNorm1d):
        def forward(self, x):
            return super().forward(x) + (not self.training)

    assert statuses(row_of("nn.BatchNorm1d", nn__BatchNorm1d=BatchNorm1d))["eager"] == "fail"


def raising(error):
    def cat(tensors, dim=0, **more):
        try:
            return torch.cat(tensors, dim, **more)
        except Exception:
            raise error from None

    return cat


def test_errors_of_both_sides_are_related():
    class Refusal(RuntimeError, TypeError, IndexError, ValueError):
        pass

    assert statuses(row_of("cat"))["errors"] == "pass"
    assert statuses(row_of("cat", cat=raising(Refusal("no"))))["errors"] == "pass"
    row = row_of("cat", cat=raising(KeyError("no")))
    assert statuses(row)["errors"] == "fail" and "torch raises" in row["cells"]["errors"]["detail"]


def test_a_wrong_call_that_is_accepted_fails():
    row = row_of("cat", cat=lambda tensors, dim=0, **more: torch.zeros(1))
    assert "accepts what torch refuses" in row["cells"]["errors"]["detail"]


def test_a_refused_graph_hides_no_wrong_one():
    """The first sample differs, and the second one is refused."""
    calls = []

    def refusing(args):
        calls.append(args)
        if len(calls) > 1:
            raise NotImplementedError("not this one")

    graph = graph_class(outputs=lambda t: t + 1, before=refusing)
    assert statuses(row_of("exp", nn__Graph=graph))["graph"] == "fail"
