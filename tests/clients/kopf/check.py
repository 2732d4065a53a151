"""Runs kopf's own example operators, as published, on the cluster of KUBECONFIG, and looks at its effects.

    check.py FOLDER_OF_THE_SOURCE_PACKAGE EXAMPLE...

prints one line `ok CLAIM` or `FAILED CLAIM: why` per example. They run one after the other on the same cluster.
"""

import json
import os
import socket
import subprocess
import sys
import urllib.request

from operator_process import Operator, get, kubectl, try_kubectl, until

NAME = "kopf-example-1"
STANDALONE = ("--all-namespaces", "--standalone")
POD = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"


class Example:
    """The files of one example, and what one does with its object."""

    def __init__(self, package, name):
        self.package = package
        self.folder = os.path.join(package, "examples", name)
        self.file = os.path.join(self.folder, "example.py")
        self.manifest = os.path.join(package, "examples", "obj.yaml")
        kubectl("apply", "-f", os.path.join(package, "examples", "crd.yaml"))

    def run(self, *options, beside=()):
        return Operator([self.file, *beside], *(options or STANDALONE))

    def apply(self):
        kubectl("apply", "-f", self.manifest)

    def change(self):
        kubectl("patch", "-f", self.manifest, "--type", "merge", "-p", '{"spec": {"field": "changed"}}')

    def delete(self):
        """The object goes only when its finalizers are removed: kubectl waits for it."""
        kubectl("delete", "-f", self.manifest, "--timeout=30s")
        assert get("kex", NAME) is None

    def status(self, field):
        """A field of the object's status, when it is there."""
        return until(f"status.{field}", lambda: get("kex", NAME).get("status", {}).get(field))

    def handled(self):
        """Waits until the operator has written down that it is done with this state of the object."""
        until("handled", lambda: LAST_HANDLED in get("kex", NAME)["metadata"].get("annotations", {}))


def finalizers():
    return get("kex", NAME)["metadata"].get("finalizers", [])


def make_pod(name, **metadata):
    """A pod, and the account it runs as, which a controller makes if there is one."""
    account = try_kubectl("create", "serviceaccount", "default")
    assert account.returncode == 0 or "already exists" in account.stderr, account.stderr
    if name:
        body = {**POD, "metadata": {"name": name, **metadata}}
        kubectl("create", "-f", "-", text=json.dumps(body))


def minimal(example):
    with example.run() as operator:
        operator.watches()
        example.apply()
        assert example.status("create_fn") == {"message": "hello world"}
        columns = kubectl("get", "kex")
        assert "hello world" in columns and "MESSAGE" in columns, columns
        example.handled()
        example.delete()


def children(example):
    make_pod(None)
    with example.run() as operator:
        operator.watches()
        example.apply()
        made = example.status("create_fn")["children"]
        pods = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
        assert [pod["metadata"]["uid"] for pod in pods] == made, pods
        [owner] = pods[0]["metadata"]["ownerReferences"]
        assert owner["kind"] == "KopfExample" and owner["uid"] == get("kex", NAME)["metadata"]["uid"], owner
        example.delete()
    kubectl("delete", "pods", "--all", "--grace-period=0", "--force")


def exceptions(example):
    with example.run() as operator:
        operator.watches()
        example.apply()
        operator.says("Handler 'instant_failure_with_only_a_message' failed permanently: Fail once and for all.")
        operator.says("Handler 'instant_failure_with_traceback' failed with an exception and will stop now")
        operator.says("Handler 'eventual_success_with_a_few_messages' succeeded.")
        operator.says("Creation is processed: 1 succeeded; 3 failed.")
        example.handled()
        # Progress was kept in annotations and is gone now.
        marks = get("kex", NAME)["metadata"]["annotations"]
        assert not any("eventual" in key for key in marks), marks
        example.delete()


def events(example):
    with example.run() as operator:
        operator.watches()
        example.apply()

        def found():
            about = ("--field-selector", f"involvedObject.name={NAME},reason=SomeReason")
            return json.loads(kubectl("get", "events", *about, "-o", "json"))["items"]

        until("four events", lambda: len(found()) == 4)
        kinds = sorted(event["type"] for event in found())
        assert kinds == ["Error", "Normal", "SomeType", "Warning"], kinds
        assert "Some message" in kubectl("describe", "-f", example.manifest)
        example.delete()


def handlers(example):
    with example.run() as operator:
        operator.watches()
        example.apply()
        operator.says("CREATED 1st")
        operator.says("CREATED 2nd")
        example.handled()
        assert finalizers() == ["kopf.zalando.org/KopfFinalizerMarker"], finalizers()
    with example.run() as operator:
        operator.says("RESUMED 1st")
        operator.says("RESUMED 2nd")
        example.change()
        operator.says("UPDATED")
        operator.says("FIELD CHANGED: value -> changed")
        example.delete()
        operator.says("DELETED 1st")
        operator.says("DELETED 2nd")


def peering(example):
    # Kinds and objects of these kinds in one file: kubectl finds the kinds of all before it makes the first, and says
    # that it must be called again.
    first = try_kubectl("apply", "-f", os.path.join(example.package, "peering.yaml"))
    assert "ensure CRDs are installed first" in first.stderr, first.stderr
    kubectl("apply", "-f", os.path.join(example.package, "peering.yaml"))

    def peers():
        return get("clusterkopfpeering", "default").get("status", {})

    with example.run("--all-namespaces", "--peering=default", "--priority=10") as first:
        first.watches()
        until("one peer", lambda: [peer["priority"] for peer in peers().values()] == [10])
        with example.run("--all-namespaces", "--peering=default", "--priority=20") as second:
            second.watches()
            first.says("Pausing operations in favour of")
            example.apply()
            second.says("Creation is processed: 1 succeeded; 0 failed.")
            assert sorted(peer["priority"] for peer in peers().values()) == [10, 20]
        first.says("Resuming operations after the pause")
        until("one peer again", lambda: [peer["priority"] for peer in peers().values()] == [10])
        example.delete()
    until("no peers", lambda: not peers())


def subhandlers(example):
    with example.run() as operator:
        operator.watches()
        example.apply()
        for item in ("item1", "item2"):
            operator.says(f"=== Handling creation for {item}. ===")
        operator.says("Creation is processed: 1 succeeded; 0 failed.")
        example.handled()
        example.delete()


def raw_events(example):
    with example.run() as operator:
        operator.watches()
        example.apply()
        operator.says("Handler 'event_fn_with_error' failed with an exception")
        operator.says("Event received: {'type': 'ADDED'")
        example.change()
        operator.says("Event received: {'type': 'MODIFIED'")
        example.delete()
        operator.says("Event received: {'type': 'DELETED'")


def own_test(example):
    """Runs the test that is published with the example."""
    make_pod(None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, example.folder]
    # It gives the operator fixed times of a few seconds, which a busy machine may need for itself.
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, cwd=example.package, timeout=120)
        if done.returncode == 0:
            return
    raise AssertionError(" / ".join((done.stdout + done.stderr).splitlines()[-15:]))


def embedded(example):
    with Operator([example.file], embedded=True) as operator:
        operator.end()
    # It gives each object one second, which a busy machine may need for itself: one of the three is enough.
    for greeting in ("Hello", "Good bye"):
        said = [f"{greeting}, kopf-example-{step}!" for step in range(3)]
        assert any(line in operator.lines for line in said), operator.tail()
    assert kubectl("get", "kex", "-o", "name") == ""


def hooks(example):
    make_pod("seen")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with example.run(*STANDALONE, f"--liveness=http://127.0.0.1:{port}/healthz") as operator:
        operator.says("Starting retried...")
        operator.says("Starting the watch-stream for pods")

        def monitored():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                return json.load(answer).get("monitored_objects") == {"default": ["seen"]}

        until("the pod is monitored", monitored)
    assert any("All pod-tasks are requested to stop..." in line for line in operator.lines), operator.tail()
    kubectl("delete", "pods", "--all", "--grace-period=0", "--force")


def daemons(example):
    with example.run() as operator:
        operator.watches()
        example.apply()
        until("a failure in the status", lambda: str(example.status("message")).startswith("Failed"))
        operator.says("=> Ping from an async daemon: field='value'")
        operator.says("=> Ping from a sync daemon: field='value', retry=3")
        assert finalizers() == ["kopf.zalando.org/KopfFinalizerMarker"], finalizers()
        example.delete()


def timers(example):
    with example.run() as operator:
        operator.watches()
        example.apply()
        operator.says("Ping from a sync timer: field='value'")
        example.change()
        operator.says("Ping from a sync timer: field='changed'")
        example.delete()


def indexing(example):
    make_pod("running", labels={"app": "x"})
    make_pod("waiting")
    running = '{"status": {"phase": "Running"}}'
    kubectl("patch", "pod", "running", "--subresource=status", "--type=merge", "-p", running)
    with example.run() as operator:
        operator.watches()
        example.apply()
        assert example.status("running-pods") == ["default::running", "default::waiting"], get("kex", NAME)
        operator.says("('app', 'x'): ")
        example.delete()
    kubectl("delete", "pods", "--all", "--grace-period=0", "--force")


def admission(example):
    certificates = os.path.join(os.path.dirname(__file__), "local_webhooks.py")
    with example.run(beside=[certificates]):
        until("webhooks", lambda: webhooks("validating") and webhooks("mutating"))
        done = try_kubectl("apply", "-f", example.manifest)
        assert done.returncode == 0 and "Accessing as user-agent" in done.stderr, done
        assert get("kex", NAME)["spec"]["injected"] == 123
        for field, refusal in (("wrong", "I don't like it"), ("not-allowed", "too lazy anyway")):
            patch = json.dumps({"spec": {"field": field}})
            done = try_kubectl("patch", "-f", example.manifest, "--type", "merge", "-p", patch)
            assert done.returncode != 0 and refusal in done.stderr, done
        patch = '{"status": {"field": "other"}}'
        done = try_kubectl("patch", "kex", NAME, "--subresource=status", "--type=merge", "-p", patch)
        assert done.returncode != 0 and "status.field MUST be equal to spec.field" in done.stderr, done
    kubectl("delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "auto.kopf.dev")
    example.delete()


def webhooks(sort):
    found = get(f"{sort}webhookconfiguration", "auto.kopf.dev")
    return found and all(hook["clientConfig"].get("caBundle") for hook in found["webhooks"]) and found["webhooks"]


def all_at_once(example):
    make_pod(None)
    with example.run() as operator:
        operator.watches()
        example.apply()
        assert example.status("create_1") == {"job1-status": 100}
        operator.says("This pod is special for us.")
        # Its next attempt comes after a minute, for which nobody waits.
        operator.says("Handler 'create_2' failed with an exception and will try again in 60 seconds: Whoops!")
        example.delete()
        events = kubectl("get", "events", "--field-selector", "reason=AnyReason", "-o", "name")
        assert len(events.splitlines()) == 1, events
    kubectl("delete", "pods", "--all", "--grace-period=0", "--force")


EXAMPLES = {
    "01-minimal": minimal,
    "02-children": children,
    "03-exceptions": exceptions,
    "04-events": events,
    "05-handlers": handlers,
    "06-peering": peering,
    "07-subhandlers": subhandlers,
    "08-events": raw_events,
    "09-testing": own_test,
    "10-builtins": own_test,
    "11-filtering-handlers": own_test,
    "12-embedded": embedded,
    "13-hooks": hooks,
    "14-daemons": daemons,
    "15-timers": timers,
    "16-indexing": indexing,
    "17-admission": admission,
    "99-all-at-once": all_at_once,
}


def run(package, name):
    claim = f"kopf: the example {name} works as published"
    try:
        EXAMPLES[name](Example(package, name))
    except Exception as error:  # an example may fail in any way, and the others still count
        print(f"FAILED {claim}: {' '.join(f'{type(error).__name__}: {error}'.split())}", flush=True)
        # What it leaves behind must not fail the next one.
        unheld = '{"metadata": {"finalizers": []}}'
        try_kubectl("patch", "kex", NAME, "--type", "merge", "-p", unheld)
        try_kubectl("delete", "kex", "--all", "--timeout=10s")
        return False
    print(f"ok {claim}", flush=True)
    return True


if __name__ == "__main__":
    package, *names = sys.argv[1:]
    sys.exit(0 if all([run(package, name) for name in names]) else 1)
