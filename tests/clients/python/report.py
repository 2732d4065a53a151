"""Uses of a client: each is a claim, runs in a namespace of its own, and prints one line that xtask counts."""

import concurrent.futures
import json
import sys
import traceback

from kubernetes import client

USES = []


def use(claim):
    """Registers a function of one argument, the namespace that is made for it."""

    def register(function):
        USES.append((claim, function))
        return function

    return register


def fresh_namespace():
    """A new namespace, and its name."""
    body = client.V1Namespace(metadata=client.V1ObjectMeta(generate_name="use-"))
    return client.CoreV1Api().create_namespace(body).metadata.name


def run_all(at_once):
    """Runs every use; true if none failed."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        outcomes = list(pool.map(_run, USES))
    return all(outcomes)


def _run(entry):
    claim, function = entry
    try:
        function(fresh_namespace())
    except Exception as error:  # a use may fail in any way, and the others still count
        where = traceback.extract_tb(error.__traceback__)
        line = next((f for f in reversed(where) if f.filename == function.__code__.co_filename), where[-1])
        said = getattr(error, "body", None) or error
        why = " ".join(f"{type(error).__name__}: {said}".split())
        _tell(f"FAILED {claim}: {why} (line {line.lineno})")
        return False
    _tell(f"ok {claim}")
    return True


def _tell(line):
    # In one write: `print` writes its newline by itself, and threads would mix their lines.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def refused(code, reason, call, *arguments, **options):
    """The Status with which the server refuses a call."""
    try:
        call(*arguments, **options)
    except client.ApiException as error:
        status = json.loads(error.body)
        assert error.status == code, f"{error.status} instead of {code}: {error.body}"
        assert status["kind"] == "Status" and status["status"] == "Failure", status
        assert status["code"] == code and status["reason"] == reason, status
        return status
    raise AssertionError(f"the server took it; expected {code} {reason}")
