"""Files of users are read as kubectl reads them."""

from pathlib import Path

from edgeai.cli.jobs.submitting import read_documents

MANIFESTS = Path(__file__).parents[3] / "cluster" / "manifests"


def test_a_time_of_day_without_quotes_is_a_text() -> None:
    documents = read_documents(MANIFESTS / "sedna-incremental.yaml")
    (job,) = [each for each in documents if each["kind"] == "IncrementalLearningJob"]
    timer = job["spec"]["trainSpec"]["trigger"]["timer"]
    assert timer == {"start": "02:00", "end": "20:00"}
