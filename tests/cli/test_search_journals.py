"""`precision search --continue`: journals that go on, and those that are refused."""

import onnx
import pytest

from search_support import BASE, answer_of, comparable, key, samples, save_inputs, trials_of


@pytest.fixture
def search(run, model, tmp_path):
    inputs = save_inputs(tmp_path / "in.json", samples(4))

    def call(*words):
        return run("precision", "search", model, "--load-inputs", inputs, *BASE, *words)

    return call


def test_a_journal_is_continued_without_repeating_trials(search, tmp_path):
    journal = tmp_path / "needs_constraints.fp16.journal.jsonl"
    assert search().code == 0
    whole, answer = journal.read_text(), answer_of(tmp_path)
    lines = whole.splitlines(keepends=True)
    for kept in range(1, len(lines) + 1):
        # The last line that stays is cut, but for the whole journal.
        journal.write_text("".join(lines[:kept])[: None if kept == len(lines) else -3])
        outcome = search("--continue")
        assert outcome.code == 0, outcome
        keys = [key(trial) for trial in trials_of(journal)]
        assert len(keys) == len(set(keys)) == len(lines) - 1
        assert comparable(answer_of(tmp_path)) == comparable(answer)


def test_journals_of_other_searches_are_refused(search, run, model, tmp_path):
    assert search().code == 0
    before = (tmp_path / "needs_constraints.fp16.journal.jsonl").read_text()
    for words, difference in (
        (["--margin", "1"], "--margin: expected '1', got 'from the data'"),
        (["--atol", "1"], "criterion: expected"),
        (["--infinities-compare-equal"], "--infinities-compare-equal: expected 'yes', got 'no'"),
        (["--fusion", "full"], "--fusion: expected 'full', got 'none'"),
        (["--keep", "Add"], "--keep: expected 'Add', got nothing"),
        (["--no-hold-out"], "samples: expected"),
    ):
        outcome = search("--continue", *words)
        assert outcome.code == 1, outcome
        assert difference in outcome.err, outcome
    changed = onnx.load(model)
    changed.graph.doc_string = "another"
    onnx.save(changed, model)
    outcome = search("--continue")
    assert outcome.code == 1 and "model: expected" in outcome.err, outcome
    assert (tmp_path / "needs_constraints.fp16.journal.jsonl").read_text() == before


def test_journals_that_are_broken(search, tmp_path):
    """A cut last line is what a killed search leaves; anything else is not ours, and stays as it is."""
    journal = tmp_path / "needs_constraints.fp16.journal.jsonl"
    assert search().code == 0
    lines = journal.read_text().splitlines(keepends=True)
    for text in (
        "hello\n",
        "{}\n",
        "\0" * 100 + "\n",
        "".join([lines[0], "garbage\n", *lines[1:]]),
        "".join([lines[0], '{"kind": 3}\n', *lines[1:]]),
    ):
        journal.write_text(text)
        outcome = search("--continue")
        assert outcome.code == 1 and "journal" in outcome.err, (text[:30], outcome)
        assert journal.read_text() == text
