"""A cell that differs on purpose fails if it differs in another way, and samples cover layouts and errors."""

import pytest
import torch
from planted import graph_class
from rows import recorded, row_of, statuses
from run import accept_differences
from suite import Suite, golden_outcome

import oneflow
from oneflow_autotest.parity import samples
from oneflow_autotest.parity.differences import difference, is_same, same_text, summary

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


def test_an_update_accepts_only_differences_that_a_row_is_about():
    rows = [row_of("exp", explain, exp=lambda x: x.exp() + 1) for explain in (explained, lambda name: "")]
    accept_differences(rows)
    assert [statuses(row)["eager"] for row in rows] == ["differs", "fail"]
    assert rows[0]["cells"]["eager"]["detail"].startswith("some-row\nvalues: the result differs")


def test_a_recorded_call_that_differs_in_another_way_fails():
    record = {"code": "flow.neg(x)", "id": "neg"}
    known, other = ([difference("", text, None)] for text in ("dtype int64", "dtype uint8"))
    assert golden_outcome(record, ["dtype int64"], "some-row", known, known)[0] == "differs"
    assert golden_outcome(record, ["dtype uint8"], "some-row", known, other)[0] == "fail"
    assert golden_outcome(record, ["dtype int64"], "some-row", None, known)[0] == "fail"
    assert golden_outcome(record, ["dtype int64"], None, None, None)[0] == "fail"
    assert golden_outcome(record, [], "some-row", known, None)[0] == "pass"


def test_samples_are_the_same_in_every_run_and_leave_the_random_stream_alone():
    op = samples.operators()["exp"]
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = (samples.operator_samples(op, torch.float32) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a.input, b.input) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", ["roll", "nn.functional.unfold"])
def test_at_most_one_sample_is_empty(name):
    inputs = [s.input for s in samples.operator_samples(samples.operators()[name], torch.float32)]
    assert len(inputs) == 4 and sum(t.numel() == 0 for t in inputs) <= 1


def test_a_graph_column_is_empty_if_eager_mode_raises():
    """torch.exp gives the samples, and this function refuses them all."""
    row = row_of("exp", exp=raising(ValueError("no")))
    assert statuses(row)["eager"] == "fail" and statuses(row)["graph"] == "none"
