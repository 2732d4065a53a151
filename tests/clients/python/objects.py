"""Typed objects of built-in kinds: create, read, list, update, patch, watch, delete."""

import itertools
import json
import threading

from kubernetes import client, watch

from report import refused, use


def core():
    return client.CoreV1Api()


def config_map(name, data=None, labels=None):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data or {})


def deployment(name):
    labels = {"app": name}
    container = client.V1Container(
        name="web",
        image="nginx:1.29",
        env=[client.V1EnvVar(name="A", value="1")],
        ports=[client.V1ContainerPort(container_port=80)],
        resources=client.V1ResourceRequirements(requests={"cpu": "100m", "memory": "64Mi"}),
    )
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name=name, labels=labels),
        spec=client.V1DeploymentSpec(
            replicas=2,
            selector=client.V1LabelSelector(match_labels=labels),
            template=client.V1PodTemplateSpec(
                metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
            ),
        ),
    )


def create_pod(namespace, name):
    """A pod, and the account it runs as, which a controller makes if there is one."""
    try:
        account = client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="default"))
        core().create_namespaced_service_account(namespace, account)
    except client.ApiException as error:
        assert error.status == 409, error
    container = client.V1Container(name="main", image="busybox")
    body = client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"app": name}),
        spec=client.V1PodSpec(containers=[container]),
    )
    return core().create_namespaced_pod(namespace, body)


@use("python: a typed object is created, read, replaced and deleted")
def _(namespace):
    made = core().create_namespaced_config_map(namespace, config_map("a", {"k": "1"}))
    assert made.metadata.uid and made.metadata.creation_timestamp.tzinfo, made.metadata
    made.data["k"] = "2"
    replaced = core().replace_namespaced_config_map("a", namespace, made)
    assert int(replaced.metadata.resource_version) > int(made.metadata.resource_version)
    assert core().read_namespaced_config_map("a", namespace).data == {"k": "2"}
    status = core().delete_namespaced_config_map("a", namespace)
    assert status["status"] == "Success" and status["details"]["uid"] == made.metadata.uid, status
    refused(404, "NotFound", core().read_namespaced_config_map, "a", namespace)


@use("python: workloads come back with their defaults as typed objects")
def _(namespace):
    made = client.AppsV1Api().create_namespaced_deployment(namespace, deployment("web"))
    assert made.spec.strategy.rolling_update.max_surge == "25%", made.spec.strategy
    assert made.spec.template.spec.containers[0].resources.requests["cpu"] == "100m"
    assert made.spec.progress_deadline_seconds == 600 and made.metadata.generation == 1
    # Every list type of a namespace is readable with the client's own classes.
    for read in (
        client.AppsV1Api().list_deployment_for_all_namespaces,
        client.RbacAuthorizationV1Api().list_cluster_role,
        client.CoreV1Api().list_namespace,
        client.CoreV1Api().list_service_for_all_namespaces,
        client.FlowcontrolApiserverV1Api().list_flow_schema,
        client.SchedulingV1Api().list_priority_class,
    ):
        assert read().items is not None


@use("python: secrets travel as base64 and are also taken as text")
def _(namespace):
    secret = client.V1Secret(
        metadata=client.V1ObjectMeta(generate_name="s-"), data={"a": "AP8Q"}, string_data={"b": "hello"}
    )
    made = core().create_namespaced_secret(namespace, secret)
    assert made.metadata.name.startswith("s-") and len(made.metadata.name) == 7, made.metadata.name
    assert made.data == {"a": "AP8Q", "b": "aGVsbG8="} and made.type == "Opaque", made


@use("python: selectors choose by label and by field")
def _(namespace):
    for name, tier in (("a", "front"), ("b", "back"), ("c", "front")):
        core().create_namespaced_config_map(namespace, config_map(name, labels={"tier": tier}))

    def names(**options):
        return [item.metadata.name for item in core().list_namespaced_config_map(namespace, **options).items]

    assert names(label_selector="tier=front") == ["a", "c"]
    assert names(label_selector="tier in (back),tier") == ["b"]
    assert names(label_selector="tier!=front", field_selector="metadata.name=b") == ["b"]
    assert names(field_selector="metadata.name!=a,metadata.name!=b") == ["c"]
    refused(400, "BadRequest", core().list_namespaced_config_map, namespace, field_selector="data.k=1")


@use("python: a list is read in pages")
def _(namespace):
    for number in range(7):
        core().create_namespaced_config_map(namespace, config_map(f"m{number}"))
    seen, token, pages = [], None, 0
    while pages == 0 or token:
        page = core().list_namespaced_config_map(namespace, limit=3, _continue=token)
        seen += [item.metadata.name for item in page.items]
        token, pages = page.metadata._continue, pages + 1
        if pages == 1:
            assert page.metadata.remaining_item_count == 4, page.metadata
    assert pages == 3 and seen == [f"m{number}" for number in range(7)], (pages, seen)
    refused(400, "BadRequest", core().list_namespaced_config_map, namespace, limit=3, _continue="nonsense")


def next_events(events, count):
    return [(event["type"], event["object"].metadata.name) for event in itertools.islice(events, count)]


@use("python: a watch shows changes and resumes where it ended")
def _(namespace):
    core().create_namespaced_config_map(namespace, config_map("a"))
    begin = core().list_namespaced_config_map(namespace).metadata.resource_version
    watcher = watch.Watch()
    core().create_namespaced_config_map(namespace, config_map("b"))
    core().delete_namespaced_config_map("b", namespace)
    events = watcher.stream(
        core().list_namespaced_config_map, namespace, resource_version=begin, timeout_seconds=30
    )
    assert next_events(events, 2) == [("ADDED", "b"), ("DELETED", "b")]
    last = watcher.resource_version
    core().create_namespaced_config_map(namespace, config_map("c"))
    core().patch_namespaced_config_map("c", namespace, {"data": {"k": "v"}})
    again = watch.Watch().stream(
        core().list_namespaced_config_map, namespace, resource_version=last, timeout_seconds=30
    )
    assert next_events(again, 2) == [("ADDED", "c"), ("MODIFIED", "c")]


@use("python: a watch that is open gets what happens later")
def _(namespace):
    opened = threading.Event()

    def write():
        opened.wait(30)
        core().create_namespaced_config_map(namespace, config_map("later"))

    writer = threading.Thread(target=write)
    writer.start()
    core().create_namespaced_config_map(namespace, config_map("first"))
    seen = []
    for event in watch.Watch().stream(core().list_namespaced_config_map, namespace, timeout_seconds=60):
        opened.set()
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            break
    writer.join()
    assert seen == [("ADDED", "first"), ("ADDED", "later")], seen


@use("python: a watch ends when its time is over")
def _(namespace):
    watcher = watch.Watch()
    assert list(watcher.stream(core().list_namespaced_config_map, namespace, timeout_seconds=1)) == []


@use("python: JSON patches, with their tests")
def _(namespace):
    core().create_namespaced_config_map(namespace, config_map("a", {"k": "1"}))
    patch = core().patch_namespaced_config_map
    body = [{"op": "test", "path": "/data/k", "value": "1"}, {"op": "add", "path": "/data/n", "value": "2"}]
    assert patch("a", namespace, body, _content_type="application/json-patch+json").data == {"k": "1", "n": "2"}
    body[0]["value"] = "other"
    refused(422, "Invalid", patch, "a", namespace, body, _content_type="application/json-patch+json")


@use("python: merge patches remove what is null")
def _(namespace):
    core().create_namespaced_config_map(namespace, config_map("a", {"k": "1", "n": "2"}))
    body = {"data": {"k": None, "n": "3"}}
    merged = core().patch_namespaced_config_map(
        "a", namespace, body, _content_type="application/merge-patch+json"
    )
    assert merged.data == {"n": "3"}, merged.data


@use("python: strategic patches merge containers by name")
def _(namespace):
    client.AppsV1Api().create_namespaced_deployment(namespace, deployment("web"))
    containers = [
        {"name": "web", "image": "nginx:1.30", "env": [{"name": "B", "value": "2"}]},
        {"name": "side", "image": "busybox"},
    ]
    patched = client.AppsV1Api().patch_namespaced_deployment(
        "web",
        namespace,
        {"spec": {"template": {"spec": {"containers": containers}}}},
        _content_type="application/strategic-merge-patch+json",
    )
    found = {container.name: container for container in patched.spec.template.spec.containers}
    assert found["web"].image == "nginx:1.30" and found["web"].ports[0].container_port == 80, found["web"]
    assert sorted(variable.name for variable in found["web"].env) == ["A", "B"] and "side" in found


@use("python: status is written through its own door only")
def _(namespace):
    apps = client.AppsV1Api()
    made = apps.create_namespaced_deployment(namespace, deployment("web"))
    made.status.replicas = 2
    made.status.observed_generation = 1
    made.spec.replicas = 9
    updated = apps.replace_namespaced_deployment_status("web", namespace, made)
    assert (updated.status.replicas, updated.spec.replicas) == (2, 2), updated
    patched = apps.patch_namespaced_deployment_status("web", namespace, {"status": {"readyReplicas": 1}})
    assert patched.status.ready_replicas == 1
    plain = apps.patch_namespaced_deployment("web", namespace, {"status": {"readyReplicas": 2}})
    assert plain.status.ready_replicas == 1, plain.status


@use("python: a workload is scaled through its scale")
def _(namespace):
    apps = client.AppsV1Api()
    apps.create_namespaced_deployment(namespace, deployment("web"))
    scale = apps.read_namespaced_deployment_scale("web", namespace)
    assert scale.spec.replicas == 2 and scale.status.selector == "app=web", scale
    scale.spec.replicas = 5
    assert apps.replace_namespaced_deployment_scale("web", namespace, scale).spec.replicas == 5
    assert apps.read_namespaced_deployment("web", namespace).spec.replicas == 5


@use("python: deletes obey preconditions, and finalizers hold them up")
def _(namespace):
    body = config_map("a")
    body.metadata.finalizers = ["example.com/hold"]
    made = core().create_namespaced_config_map(namespace, body)
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
    refused(409, "Conflict", core().delete_namespaced_config_map, "a", namespace, body=wrong)
    right = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=made.metadata.uid))
    core().delete_namespaced_config_map("a", namespace, body=right)
    held = core().read_namespaced_config_map("a", namespace)
    assert held.metadata.deletion_timestamp, held.metadata
    core().patch_namespaced_config_map(
        "a", namespace, {"metadata": {"finalizers": None}}, _content_type="application/merge-patch+json"
    )
    refused(404, "NotFound", core().read_namespaced_config_map, "a", namespace)


@use("python: propagation policies of a delete leave their finalizers")
def _(namespace):
    apps = client.AppsV1Api()
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        apps.create_namespaced_deployment(namespace, deployment(policy.lower()))
        apps.delete_namespaced_deployment(policy.lower(), namespace, propagation_policy=policy)
        found = apps.read_namespaced_deployment(policy.lower(), namespace)
        assert found.metadata.finalizers == [finalizer], found.metadata
    apps.create_namespaced_deployment(namespace, deployment("background"))
    apps.delete_namespaced_deployment("background", namespace, propagation_policy="Background")
    refused(404, "NotFound", apps.read_namespaced_deployment, "background", namespace)


@use("python: a collection is deleted by label")
def _(namespace):
    for name in ("a", "b", "c"):
        labels = {"go": "yes"} if name != "b" else None
        core().create_namespaced_config_map(namespace, config_map(name, labels=labels))
    core().delete_collection_namespaced_config_map(namespace, label_selector="go=yes")
    assert [item.metadata.name for item in core().list_namespaced_config_map(namespace).items] == ["b"]


@use("python: a write with dryRun leaves nothing")
def _(namespace):
    made = core().create_namespaced_config_map(namespace, config_map("a"), dry_run="All")
    assert made.metadata.uid
    refused(404, "NotFound", core().read_namespaced_config_map, "a", namespace)


@use("python: refusals say why: exists, not found, conflict, invalid")
def _(namespace):
    made = core().create_namespaced_config_map(namespace, config_map("a"))
    status = refused(409, "AlreadyExists", core().create_namespaced_config_map, namespace, config_map("a"))
    assert status["details"] == {"name": "a", "kind": "configmaps"}, status
    core().patch_namespaced_config_map("a", namespace, {"data": {"x": "y"}})
    status = refused(409, "Conflict", core().replace_namespaced_config_map, "a", namespace, made)
    assert "the object has been modified" in status["message"], status
    status = refused(404, "NotFound", core().read_namespaced_config_map, "no", namespace)
    assert status["message"] == 'configmaps "no" not found', status
    bad = deployment("web")
    bad.spec.replicas = -1
    bad.spec.selector.match_labels = {"other": "label"}
    status = refused(422, "Invalid", client.AppsV1Api().create_namespaced_deployment, namespace, bad)
    fields = {cause["field"] for cause in status["details"]["causes"]}
    assert fields == {"spec.replicas", "spec.template.metadata.labels"}, fields


@use("python: a pod is bound, runs by its status, and is deleted at once when asked")
def _(namespace):
    create_pod(namespace, "p")
    target = client.V1ObjectReference(api_version="v1", kind="Node", name="nowhere")
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name="p"), target=target)
    # The client expects a Binding back while servers answer with a Status, so its answer is not read.
    core().create_namespaced_pod_binding("p", namespace, binding, _preload_content=False)
    bound = core().read_namespaced_pod("p", namespace)
    assert bound.spec.node_name == "nowhere", bound.spec
    assert any(c.type == "PodScheduled" and c.status == "True" for c in bound.status.conditions)
    core().patch_namespaced_pod_status("p", namespace, {"status": {"phase": "Running"}})
    found = core().list_pod_for_all_namespaces(
        field_selector=f"spec.nodeName=nowhere,metadata.namespace={namespace}"
    )
    assert [item.status.phase for item in found.items] == ["Running"]
    core().delete_namespaced_pod("p", namespace, grace_period_seconds=0)
    refused(404, "NotFound", core().read_namespaced_pod, "p", namespace)


@use("python: an eviction deletes, and a budget forbids it")
def _(namespace):
    for name in ("free", "kept"):
        create_pod(namespace, name)
    budget = client.V1PodDisruptionBudget(
        metadata=client.V1ObjectMeta(name="b"),
        spec=client.V1PodDisruptionBudgetSpec(
            min_available=1, selector=client.V1LabelSelector(match_labels={"app": "kept"})
        ),
    )
    client.PolicyV1Api().create_namespaced_pod_disruption_budget(namespace, budget)
    # Pods that never ran are always evicted: both run, as the budget's controller would have seen.
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in ("free", "kept"):
        core().patch_namespaced_pod_status(name, namespace, {"status": ready})
    counts = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    client.PolicyV1Api().patch_namespaced_pod_disruption_budget_status(
        "b", namespace, {"status": {**counts, "expectedPods": 1}}
    )

    def evict(name):
        body = client.V1Eviction(
            metadata=client.V1ObjectMeta(name=name),
            delete_options=client.V1DeleteOptions(grace_period_seconds=0),
        )
        return core().create_namespaced_pod_eviction(name, namespace, body, _preload_content=False)

    evict("free")
    refused(404, "NotFound", core().read_namespaced_pod, "free", namespace)
    status = refused(429, "TooManyRequests", evict, "kept")
    assert status["details"]["causes"][0]["reason"] == "DisruptionBudget", status
    assert core().read_namespaced_pod("kept", namespace).metadata.deletion_timestamp is None


@use("python: events are written and found by the object they are about")
def _(namespace):
    made = core().create_namespaced_config_map(namespace, config_map("a"))
    about = client.V1ObjectReference(
        api_version="v1", kind="ConfigMap", name="a", namespace=namespace, uid=made.metadata.uid
    )
    event = client.CoreV1Event(
        metadata=client.V1ObjectMeta(generate_name="a."),
        involved_object=about,
        reason="Tested",
        message="seen by the client",
        type="Normal",
        source=client.V1EventSource(component="check"),
    )
    core().create_namespaced_event(namespace, event)
    selector = f"involvedObject.uid={made.metadata.uid},reason=Tested"
    assert len(core().list_namespaced_event(namespace, field_selector=selector).items) == 1
    # The client's class wants an eventTime, which events of this older form do not have.
    same = client.EventsV1Api().list_namespaced_event(namespace, _preload_content=False)
    assert [item["note"] for item in json.loads(same.read())["items"]] == ["seen by the client"]


@use("python: a lease is taken over by whoever writes first")
def _(namespace):
    leases = client.CoordinationV1Api()
    body = client.V1Lease(
        metadata=client.V1ObjectMeta(name="lock"),
        spec=client.V1LeaseSpec(holder_identity="one", lease_duration_seconds=15),
    )
    first = leases.create_namespaced_lease(namespace, body)
    second = leases.read_namespaced_lease("lock", namespace)
    first.spec.holder_identity = "two"
    leases.replace_namespaced_lease("lock", namespace, first)
    second.spec.holder_identity = "three"
    refused(409, "Conflict", leases.replace_namespaced_lease, "lock", namespace, second)
    assert leases.read_namespaced_lease("lock", namespace).spec.holder_identity == "two"
