"""Kinds of one's own, the dynamic client, server-side apply, and questions about access."""

import base64
import json
import os
import tempfile
import threading

from kubernetes import client, dynamic, informer, utils

from objects import config_map, core, deployment
from report import refused, use

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["sails"],
            "properties": {
                "sails": {"type": "integer", "minimum": 1},
                "name": {"type": "string", "default": "unnamed"},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def dynamic_client():
    """With a file of its own for what it discovers: the usual one is shared, and read while another writes it."""
    cache = tempfile.NamedTemporaryFile(delete=False)
    cache.close()
    os.unlink(cache.name)
    return dynamic.DynamicClient(client.ApiClient(), cache_file=cache.name)


def definition(plural, kind):
    version = client.V1CustomResourceDefinitionVersion(
        name="v1",
        served=True,
        storage=True,
        schema=client.V1CustomResourceValidation(open_apiv3_schema=SCHEMA),
        subresources=client.V1CustomResourceSubresources(
            status={},
            scale=client.V1CustomResourceSubresourceScale(
                spec_replicas_path=".spec.sails", status_replicas_path=".status.sails"
            ),
        ),
    )
    return client.V1CustomResourceDefinition(
        metadata=client.V1ObjectMeta(name=f"{plural}.example.com"),
        spec=client.V1CustomResourceDefinitionSpec(
            group="example.com",
            scope="Namespaced",
            names=client.V1CustomResourceDefinitionNames(plural=plural, singular=kind.lower(), kind=kind),
            versions=[version],
        ),
    )


def boat(name, kind="Boat", **spec):
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@use("python: a definition is made, its objects live, and go with it")
def _(namespace):
    definitions = client.ApiextensionsV1Api()
    made = definitions.create_custom_resource_definition(definition("boats", "Boat"))
    assert made.spec.versions[0].schema.open_apiv3_schema.properties["spec"].required == ["sails"]
    served = definitions.read_custom_resource_definition("boats.example.com")
    assert any(c.type == "Established" and c.status == "True" for c in served.status.conditions)

    boats = client.CustomObjectsApi()
    place = ("example.com", "v1", namespace, "boats")
    ketch = boats.create_namespaced_custom_object(*place, boat("ketch", sails=2))
    assert ketch["spec"]["name"] == "unnamed" and ketch["metadata"]["generation"] == 1, ketch
    status = refused(422, "Invalid", boats.create_namespaced_custom_object, *place, boat("raft", sails=0))
    assert status["details"]["causes"][0]["field"] == "spec.sails", status
    ketch["spec"]["sails"] = 3
    ketch = boats.replace_namespaced_custom_object(*place, "ketch", ketch)
    assert ketch["metadata"]["generation"] == 2
    ketch["status"] = {"afloat": True}
    ketch = boats.replace_namespaced_custom_object_status(*place, "ketch", ketch)
    assert ketch["status"] == {"afloat": True} and ketch["metadata"]["generation"] == 2, ketch
    patched = boats.patch_namespaced_custom_object(
        *place, "ketch", {"spec": {"name": "Ann"}}, _content_type="application/merge-patch+json"
    )
    assert patched["spec"] == {"name": "Ann", "sails": 3}, patched
    assert boats.get_namespaced_custom_object_scale(*place, "ketch")["spec"]["replicas"] == 3
    found = boats.list_namespaced_custom_object(*place, field_selector="metadata.name=ketch")
    assert found["kind"] == "BoatList" and len(found["items"]) == 1, found
    boats.delete_namespaced_custom_object(*place, "ketch")
    refused(404, "NotFound", boats.get_namespaced_custom_object, *place, "ketch")

    definitions.delete_custom_resource_definition("boats.example.com")


@use("python: the dynamic client finds resources by discovery and works on them")
def _(namespace):
    client.ApiextensionsV1Api().create_custom_resource_definition(definition("rafts", "Raft"))
    anything = dynamic_client()
    assert int(anything.version["kubernetes"]["minor"].rstrip("+")) >= 36
    rafts = anything.resources.get(api_version="example.com/v1", kind="Raft")
    made = rafts.create(body=boat("r", kind="Raft", sails=1), namespace=namespace)
    assert made.spec.name == "unnamed"
    assert [item.metadata.name for item in rafts.get(namespace=namespace).items] == ["r"]
    rafts.patch(
        body=boat("r", kind="Raft", sails=4),
        namespace=namespace,
        content_type="application/merge-patch+json",
    )
    rafts.status.patch(
        body={"metadata": {"name": "r"}, "status": {"afloat": True}},
        namespace=namespace,
        content_type="application/merge-patch+json",
    )
    assert rafts.get(name="r", namespace=namespace).to_dict()["status"] == {"afloat": True}
    for event in rafts.watch(namespace=namespace, timeout=30):
        assert event["type"] == "ADDED" and event["object"].spec.sails == 4, event
        break
    rafts.delete(name="r", namespace=namespace)
    try:
        rafts.get(name="r", namespace=namespace)
    except dynamic.exceptions.NotFoundError:
        pass
    else:
        raise AssertionError("the object is still there")


@use("python: a streamed list ends with its bookmark")
def _(namespace):
    for name in ("a", "b"):
        core().create_namespaced_config_map(namespace, config_map(name))
    maps = dynamic_client().resources.get(api_version="v1", kind="ConfigMap")
    seen = []
    for event in maps.watch(
        namespace=namespace,
        timeout=30,
        allow_watch_bookmarks=True,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
    ):
        if event["type"] == "BOOKMARK":
            marks = event["raw_object"]["metadata"]["annotations"]
            assert marks == {"k8s.io/initial-events-end": "true"}, marks
            break
        seen.append(event["object"].metadata.name)
    assert seen == ["a", "b"], seen


@use("python: server-side apply shares an object and tells of conflicts")
def _(namespace):
    anything = dynamic_client()
    deployments = anything.resources.get(api_version="apps/v1", kind="Deployment")

    def wanted(replicas):
        body = client.ApiClient().sanitize_for_serialization(deployment("web"))
        return {**body, "apiVersion": "apps/v1", "kind": "Deployment", "spec": {**body["spec"], "replicas": replicas}}

    def apply(body, manager, **options):
        return deployments.server_side_apply(body=body, namespace=namespace, field_manager=manager, **options)

    apply(wanted(2), "one")
    try:
        apply(wanted(3), "two")
    except dynamic.exceptions.ConflictError as error:
        status = json.loads(error.body)
        causes = [(cause["reason"], cause["field"]) for cause in status["details"]["causes"]]
        assert causes == [("FieldManagerConflict", ".spec.replicas")], status
    else:
        raise AssertionError("two managers own one field")
    forced = apply(wanted(3), "two", force_conflicts=True)
    owners = {entry.manager for entry in forced.metadata.managedFields if entry.operation == "Apply"}
    assert forced.spec.replicas == 3 and owners == {"one", "two"}, owners


@use("python: a typo is refused when one asks for strictness, and told otherwise")
def _(namespace):
    maps = dynamic_client().resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dta": {"k": "v"}}
    try:
        maps.create(body=body, namespace=namespace, query_params=[("fieldValidation", "Strict")])
    except dynamic.exceptions.BadRequestError as error:
        assert 'unknown field "dta"' in json.loads(error.body)["message"], error
    else:
        raise AssertionError("the server took it")
    assert maps.create(body=body, namespace=namespace).to_dict().get("dta") is None


@use("python: objects are made from YAML")
def _(namespace):
    document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    document["spec"] = {"selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "web"}]}
    utils.create_from_dict(client.ApiClient(), document, namespace=namespace)
    found = core().read_namespaced_service("s", namespace)
    assert found.spec.cluster_ip and found.spec.ports[0].target_port == "web", found.spec


@use("python: an informer keeps a cache up to date")
def _(namespace):
    added, gone = threading.Event(), threading.Event()
    core().create_namespaced_config_map(namespace, config_map("a"))
    kept = informer.SharedInformer(
        list_func=lambda **options: core().list_namespaced_config_map(namespace, **options),
    )
    kept.add_event_handler("ADDED", lambda item: added.set())
    kept.add_event_handler("DELETED", lambda item: gone.set())
    kept.start()
    try:
        assert added.wait(30) and kept.cache.get_by_key(f"{namespace}/a") is not None
        core().delete_namespaced_config_map("a", namespace)
        assert gone.wait(30) and kept.cache.list() == []
    finally:
        kept.stop()


def token_client(namespace, account, audiences=None):
    core().create_namespaced_service_account(
        namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name=account))
    )
    request = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=audiences or [], expiration_seconds=3600)
    )
    answer = core().create_namespaced_service_account_token(account, namespace, request)
    settings = client.Configuration.get_default_copy()
    settings.cert_file = settings.key_file = None
    settings.api_key = {"authorization": f"Bearer {answer.status.token}"}
    return answer, client.ApiClient(settings)


@use("python: a token is given out, proves who one is, and gives no more than its role")
def _(namespace):
    answer, its_client = token_client(namespace, "robot")
    assert answer.status.expiration_timestamp, answer
    middle = answer.status.token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    user = f"system:serviceaccount:{namespace}:robot"
    assert claims["sub"] == user, claims
    me = client.AuthenticationV1Api(its_client).create_self_subject_review(client.V1SelfSubjectReview())
    assert me.status.user_info.username == user, me
    review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=answer.status.token))
    seen = client.AuthenticationV1Api().create_token_review(review)
    assert seen.status.authenticated and seen.status.user.username == user, seen

    theirs = client.CoreV1Api(its_client)
    status = refused(403, "Forbidden", theirs.list_namespaced_config_map, namespace)
    assert f'User "{user}" cannot list resource "configmaps"' in status["message"], status
    rbac = client.RbacAuthorizationV1Api()
    rule = client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["get", "list", "watch"])
    rbac.create_namespaced_role(
        namespace, client.V1Role(metadata=client.V1ObjectMeta(name="reader"), rules=[rule])
    )
    rbac.create_namespaced_role_binding(
        namespace,
        client.V1RoleBinding(
            metadata=client.V1ObjectMeta(name="robot"),
            role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="reader"),
            subjects=[client.RbacV1Subject(kind="ServiceAccount", name="robot", namespace=namespace)],
        ),
    )
    assert theirs.list_namespaced_config_map(namespace).items is not None
    refused(403, "Forbidden", theirs.create_namespaced_config_map, namespace, config_map("x"))


@use("python: a wrong token is nobody")
def _(namespace):
    settings = client.Configuration.get_default_copy()
    settings.cert_file = settings.key_file = None
    settings.api_key = {"authorization": "Bearer nonsense"}
    nobody = client.CoreV1Api(client.ApiClient(settings))
    refused(401, "Unauthorized", nobody.list_namespaced_config_map, namespace)


@use("python: one can ask what one may do")
def _(namespace):
    attributes = client.V1ResourceAttributes(namespace=namespace, verb="create", resource="pods")
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    )
    access = client.AuthorizationV1Api()
    assert access.create_self_subject_access_review(review).status.allowed
    asked = client.V1SubjectAccessReview(
        spec=client.V1SubjectAccessReviewSpec(user="jane", resource_attributes=attributes)
    )
    assert not access.create_subject_access_review(asked).status.allowed
    rules = access.create_self_subject_rules_review(
        client.V1SelfSubjectRulesReview(spec=client.V1SelfSubjectRulesReviewSpec(namespace=namespace))
    )
    assert any("*" in rule.verbs for rule in rules.status.resource_rules), rules
