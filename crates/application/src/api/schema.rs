//! The schema of the kind: descriptions for `kubectl explain`, defaults, bounds. The rules are those of [`rules`].
//!
//! Everything that a rule looks at is bounded, because the cost of rules is estimated from the bounds.

use serde_json::{Value, json};

use super::rules;

/// The most variables of the environment.
const VARIABLES: u32 = 200;

/// The whole schema.
pub(super) fn schema() -> Value {
    let mut root = object(
        "A program that runs in the cluster, with everything around it: pods, service, scaling, storage.",
        &["spec"],
        vec![("spec", spec()), ("status", status())],
    );
    root["properties"]["metadata"] = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 63}},
    });
    at("", root)
}

fn spec() -> Value {
    let fields = [basics(), execution(), rollout(), placement()].concat();
    at("spec", object("What is wanted.", &["image"], fields))
}

fn basics() -> Vec<(&'static str, Value)> {
    vec![
        (
            "replicas",
            default(
                integer(
                    "How many pods. With scaling this is only the number to begin with. 0 suspends the application, and automatic scaling with it.",
                    0,
                    1000,
                ),
                json!(1),
            ),
        ),
        (
            "image",
            pattern(
                text(
                    "The container image. Give a tag or digest that does not move, so that a rollback brings back what ran before.",
                    512,
                ),
                r"^\S+$",
            ),
        ),
        (
            "port",
            port("Where the program listens. The port is called http, and the Service has the same number."),
        ),
        (
            "ports",
            at(
                "spec/ports",
                map_list(
                    "Where the program listens, if in several places. The first one is for probes and the ingress.",
                    &["name"],
                    32,
                    object(
                        "A place where the program listens.",
                        &["name", "port"],
                        vec![
                            (
                                "name",
                                pattern(
                                    text("How probes and others call it.", 15),
                                    "^[a-z]([-a-z0-9]*[a-z0-9])?$",
                                ),
                            ),
                            ("port", port("The number in the container.")),
                            (
                                "servicePort",
                                port("The number at the Service; the same unless told otherwise."),
                            ),
                            (
                                "protocol",
                                default(choice("The protocol.", &["TCP", "UDP", "SCTP"]), json!("TCP")),
                            ),
                        ],
                    ),
                ),
            ),
        ),
        (
            "resources",
            at(
                "spec/resources",
                object(
                    "Processor time and memory of each pod.",
                    &[],
                    vec![
                        (
                            "requests",
                            quantities(
                                "What is reserved for each pod. Automatic scaling measures use in percent of this.",
                            ),
                        ),
                        ("limits", quantities("What a pod cannot exceed.")),
                    ],
                ),
            ),
        ),
        (
            "healthCheck",
            at(
                "spec/healthCheck",
                object(
                    "How to tell that a pod works.",
                    &[],
                    vec![
                        ("livenessProbe", probe("A container that fails this is started again.")),
                        ("readinessProbe", probe("A pod that fails this gets no requests.")),
                        ("startupProbe", probe("Until this succeeds once, the other probes wait.")),
                    ],
                ),
            ),
        ),
        (
            "scaling",
            at(
                "spec/scaling",
                object(
                    "Automatic scaling by use. While it is set, the autoscaler says how many pods there are.",
                    &["maxReplicas"],
                    vec![
                        ("minReplicas", default(integer("The fewest pods.", 1, 1000), json!(1))),
                        ("maxReplicas", integer("The most pods.", 1, 1000)),
                        (
                            "targetCPUUtilizationPercentage",
                            integer(
                                "Processor time that pods shall use, in percent of what they request. 80 if no target is given.",
                                1,
                                1000,
                            ),
                        ),
                        (
                            "targetMemoryUtilizationPercentage",
                            integer("Memory that pods shall use, in percent of what they request.", 1, 1000),
                        ),
                        (
                            "behavior",
                            open(
                                "How fast pods come and go: scaleUp and scaleDown, each as in a HorizontalPodAutoscaler.",
                            ),
                        ),
                    ],
                ),
            ),
        ),
        (
            "storage",
            object(
                "Volumes that stay when pods go.",
                &[],
                vec![(
                    "persistentVolumeClaims",
                    at(
                        "spec/storage/persistentVolumeClaims",
                        map_list("The volumes. All pods use the same ones.", &["name"], 16, claim()),
                    ),
                )],
            ),
        ),
        (
            "network",
            at(
                "spec/network",
                object(
                    "How the application is reached.",
                    &[],
                    vec![
                        (
                            "serviceType",
                            default(
                                choice(
                                    "The type of the Service: reached within the cluster, on a port of every node, or by an address from outside.",
                                    &["ClusterIP", "NodePort", "LoadBalancer"],
                                ),
                                json!("ClusterIP"),
                            ),
                        ),
                        (
                            "loadBalancer",
                            object(
                                "For serviceType LoadBalancer.",
                                &[],
                                vec![(
                                    "sourceRanges",
                                    list(
                                        "Networks that are let in, such as 10.0.0.0/8. Everybody unless told otherwise.",
                                        64,
                                        at(
                                            "spec/network/loadBalancer/sourceRanges/[]",
                                            text("A network.", 64),
                                        ),
                                    ),
                                )],
                            ),
                        ),
                        ("serviceAnnotations", texts_by_name("Annotations of the Service.")),
                        (
                            "ingress",
                            object(
                                "Makes it reachable by a host name, through an ingress controller.",
                                &["host"],
                                vec![
                                    (
                                        "host",
                                        pattern(
                                            text("The name, such as shop.example.com.", 253),
                                            r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
                                        ),
                                    ),
                                    (
                                        "path",
                                        default(
                                            pattern(
                                                text(
                                                    "Which paths of the host; all unless told otherwise.",
                                                    1024,
                                                ),
                                                "^/",
                                            ),
                                            json!("/"),
                                        ),
                                    ),
                                    (
                                        "className",
                                        text(
                                            "Which ingress controller; the cluster's default unless told otherwise.",
                                            253,
                                        ),
                                    ),
                                    (
                                        "tlsSecretName",
                                        text(
                                            "The Secret with certificate and key. Without it there is no TLS.",
                                            253,
                                        ),
                                    ),
                                    ("annotations", texts_by_name("Annotations of the Ingress.")),
                                ],
                            ),
                        ),
                        (
                            "networkPolicy",
                            object(
                                "Lets in only these, and only on the application's ports.",
                                &[],
                                vec![(
                                    "from",
                                    list(
                                        "Who is let in, each as in a NetworkPolicy: podSelector, namespaceSelector or ipBlock. Everybody unless told otherwise.",
                                        64,
                                        open("Pods, namespaces or addresses."),
                                    ),
                                )],
                            ),
                        ),
                    ],
                ),
            ),
        ),
        (
            "security",
            object(
                "As whom the pods run.",
                &[],
                vec![
                    (
                        "serviceAccount",
                        pattern(
                            text(
                                "The account of the pods. It is made if it is missing, and deleted with the application that it was made for.",
                                253,
                            ),
                            r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
                        ),
                    ),
                    ("securityContext", at("spec/security/securityContext", security_context())),
                    (
                        "imagePullSecrets",
                        map_list(
                            "Secrets for pulling the image.",
                            &["name"],
                            16,
                            object(
                                "A Secret of the namespace.",
                                &["name"],
                                vec![("name", text("Its name.", 253))],
                            ),
                        ),
                    ),
                ],
            ),
        ),
    ]
}

fn execution() -> Vec<(&'static str, Value)> {
    vec![
        ("command", list("The program, instead of the image's entry point.", 256, text("A word.", 32_768))),
        ("args", list("Arguments of the program.", 256, text("A word.", 32_768))),
        (
            "environment",
            map_list(
                "Environment variables. A value may name earlier ones as in $(NAME).",
                &["name"],
                VARIABLES,
                variable(),
            ),
        ),
        (
            "environmentFrom",
            list("Objects whose keys all become environment variables.", 32, {
                let reference = |about: &str| {
                    object(
                        about,
                        &["name"],
                        vec![
                            ("name", text("Its name.", 253)),
                            ("optional", flag("Whether pods start without it.")),
                        ],
                    )
                };
                at(
                    "spec/environmentFrom/[]",
                    object(
                        "A source of variables.",
                        &[],
                        vec![
                            ("prefix", text("Put before each name.", 128)),
                            ("configMapRef", reference("A ConfigMap.")),
                            ("secretRef", reference("A Secret.")),
                        ],
                    ),
                )
            }),
        ),
        (
            "configFiles",
            map_list(
                "Files with settings. Pods are replaced when one changes.",
                &["path"],
                32,
                object(
                    "A file.",
                    &["path"],
                    vec![
                        ("path", pattern(text("Where it lies in the container.", 512), "^/.*[^/]$")),
                        ("content", text("What it says.", 262_144)),
                    ],
                ),
            ),
        ),
        (
            "terminationGracePeriodSeconds",
            integer("How long a pod has to end before it is killed.", 0, 86_400),
        ),
    ]
}

fn rollout() -> Vec<(&'static str, Value)> {
    vec![
        (
            "strategy",
            at(
                "spec/strategy",
                object(
                    "How pods are replaced. Unless told otherwise: a few at a time; where a volume can be used on one node only, old pods go first.",
                    &[],
                    vec![
                        (
                            "type",
                            default(
                                choice("Few at a time, or all at once.", &["RollingUpdate", "Recreate"]),
                                json!("RollingUpdate"),
                            ),
                        ),
                        (
                            "rollingUpdate",
                            at(
                                "spec/strategy/rollingUpdate",
                                object(
                                    "How many at a time.",
                                    &[],
                                    vec![
                                        ("maxSurge", number_or_percent("So many pods more than wanted.")),
                                        (
                                            "maxUnavailable",
                                            number_or_percent("So many pods fewer than wanted."),
                                        ),
                                    ],
                                ),
                            ),
                        ),
                    ],
                ),
            ),
        ),
        (
            "minReadySeconds",
            default(integer("How long a pod must be ready to count as available.", 0, 3600), json!(0)),
        ),
        (
            "progressDeadlineSeconds",
            default(
                integer("How long a rollout may make no progress before it has failed.", 1, 86_400),
                json!(600),
            ),
        ),
        ("revisionHistoryLimit", default(integer("How many old ReplicaSets are kept.", 0, 100), json!(10))),
        (
            "rollback",
            default(
                object(
                    "What happens when a rollout fails.",
                    &[],
                    vec![
                        (
                            "enabled",
                            default(
                                flag(
                                    "Whether the last template that worked is put back. The one that failed is not tried again until the specification changes.",
                                ),
                                json!(true),
                            ),
                        ),
                        (
                            "crashLoopRestarts",
                            default(
                                integer(
                                    "After so many restarts of one new container the rollout has failed, without waiting for the deadline.",
                                    1,
                                    100,
                                ),
                                json!(3),
                            ),
                        ),
                    ],
                ),
                json!({}),
            ),
        ),
        (
            "podDisruptionBudget",
            at(
                "spec/podDisruptionBudget",
                object(
                    "How many pods may be missing while nodes are drained.",
                    &[],
                    vec![
                        ("minAvailable", number_or_percent("So many must stay.")),
                        ("maxUnavailable", number_or_percent("So many may be missing.")),
                    ],
                ),
            ),
        ),
        ("paused", flag("Leave everything as it is. Only deletion is still carried out.")),
        (
            "deletionPolicy",
            default(
                choice(
                    "What happens to the children when the application is deleted: they are deleted (volumes as their retention says), or stay and run on.",
                    &["Delete", "Orphan"],
                ),
                json!("Delete"),
            ),
        ),
    ]
}

fn placement() -> Vec<(&'static str, Value)> {
    vec![
        ("podLabels", texts_by_name("More labels of the pods.")),
        ("podAnnotations", texts_by_name("Annotations of the pods.")),
        ("nodeSelector", texts_by_name("Labels that nodes must have.")),
        (
            "tolerations",
            list(
                "Taints of nodes that the pods put up with.",
                32,
                object(
                    "A taint.",
                    &[],
                    vec![
                        ("key", text("Which key; all if empty.", 316)),
                        ("operator", choice("How the value is compared.", &["Exists", "Equal", "Lt", "Gt"])),
                        ("value", text("The value.", 316)),
                        (
                            "effect",
                            choice(
                                "Which effect; all if left out.",
                                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
                            ),
                        ),
                        (
                            "tolerationSeconds",
                            json!({"type": "integer", "format": "int64", "description": "For how long, with NoExecute."}),
                        ),
                    ],
                ),
            ),
        ),
        ("affinity", open("Which nodes and neighbours are preferred or needed, as in a pod.")),
        (
            "topologySpreadConstraints",
            list(
                "How pods are spread, as in a pod. A constraint without labelSelector means the pods of this application.",
                16,
                {
                    let mut constraint = open("A constraint: maxSkew, topologyKey, whenUnsatisfiable.");
                    constraint["required"] = json!(["maxSkew", "topologyKey", "whenUnsatisfiable"]);
                    constraint["properties"] = json!({
                        "maxSkew": {"type": "integer", "format": "int32", "minimum": 1, "description": "How uneven it may be."},
                        "topologyKey": {"type": "string", "maxLength": 316, "description": "The label of nodes that is looked at."},
                        "whenUnsatisfiable": {"type": "string", "enum": ["DoNotSchedule", "ScheduleAnyway"], "description": "Whether pods wait."},
                    });
                    constraint
                },
            ),
        ),
        ("priorityClassName", text("Importance of the pods.", 253)),
    ]
}

fn claim() -> Value {
    let mut modes = list(
        "Who may use it at once.",
        4,
        choice("A mode.", &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]),
    );
    modes["minItems"] = json!(1);
    modes["x-kubernetes-list-type"] = json!("set");
    at(
        "spec/storage/persistentVolumeClaims/[]",
        object(
            "A volume that stays.",
            &["name", "size"],
            vec![
                (
                    "name",
                    pattern(
                        text("The name. The claim is called APPLICATION-NAME.", 63),
                        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                    ),
                ),
                ("size", quantity("How large, such as 10Gi. It can grow, not shrink.")),
                ("accessModes", default(modes, json!(["ReadWriteOnce"]))),
                (
                    "storageClassName",
                    text("From which class; the cluster's default if left out, none if empty.", 253),
                ),
                (
                    "mountPath",
                    pattern(
                        text("Where it is in the container; /data/NAME unless told otherwise.", 512),
                        "^/",
                    ),
                ),
                ("subPath", pattern(text("Which folder of the volume.", 512), "^[^/]")),
                ("readOnly", flag("Only for reading.")),
                (
                    "allowShared",
                    default(
                        flag(
                            "All pods may share this volume although it can be used on one node only: then they all have to run on that node.",
                        ),
                        json!(false),
                    ),
                ),
                (
                    "retention",
                    default(
                        choice(
                            "What happens to the volume when the application or this entry is deleted: it is kept, and taken up again by a new application of the same name, or deleted with what is on it.",
                            &["Retain", "Delete"],
                        ),
                        json!("Retain"),
                    ),
                ),
            ],
        ),
    )
}

fn variable() -> Value {
    let key_of = |about: &str| {
        object(
            about,
            &["name", "key"],
            vec![
                ("name", text("Name of the object.", 253)),
                ("key", text("Which key of it.", 253)),
                ("optional", flag("Whether pods start without it.")),
            ],
        )
    };
    at(
        "spec/environment/[]",
        object(
            "A variable.",
            &["name"],
            vec![
                ("name", pattern(text("Its name.", 253), "^[^=]+$")),
                ("value", text("Its value.", 32_768)),
                (
                    "valueFrom",
                    at(
                        "spec/environment/[]/valueFrom",
                        object(
                            "Where its value comes from.",
                            &[],
                            vec![
                                ("configMapKeyRef", key_of("From a ConfigMap.")),
                                ("secretKeyRef", key_of("From a Secret.")),
                                (
                                    "fieldRef",
                                    object(
                                        "From the pod itself.",
                                        &["fieldPath"],
                                        vec![
                                            ("apiVersion", text("Version of the path.", 64)),
                                            ("fieldPath", text("Such as metadata.name.", 512)),
                                        ],
                                    ),
                                ),
                                (
                                    "resourceFieldRef",
                                    object(
                                        "From the container's resources.",
                                        &["resource"],
                                        vec![
                                            ("containerName", text("Which container.", 63)),
                                            ("resource", text("Such as limits.cpu.", 253)),
                                            ("divisor", quantity("The unit.")),
                                        ],
                                    ),
                                ),
                            ],
                        ),
                    ),
                ),
            ],
        ),
    )
}

fn probe(about: &str) -> Value {
    let mut name = number_or_text("Number or name; the application's first port unless told otherwise.");
    name["maxLength"] = json!(15);
    at(
        "probe",
        object(
            about,
            &[],
            vec![
                (
                    "httpGet",
                    object(
                        "Asks by HTTP. Answers from 200 to 399 are good.",
                        &[],
                        vec![
                            ("path", pattern(text("What is asked for.", 1024), "^/")),
                            ("port", name.clone()),
                            ("scheme", choice("The scheme; HTTP unless told otherwise.", &["HTTP", "HTTPS"])),
                            (
                                "httpHeaders",
                                list(
                                    "Headers of the request.",
                                    32,
                                    object(
                                        "A header.",
                                        &["name", "value"],
                                        vec![
                                            ("name", text("Its name.", 256)),
                                            ("value", text("Its value.", 4096)),
                                        ],
                                    ),
                                ),
                            ),
                        ],
                    ),
                ),
                ("tcpSocket", object("Opens a connection.", &[], vec![("port", name)])),
                (
                    "exec",
                    object(
                        "Runs a command in the container. 0 is good.",
                        &["command"],
                        vec![("command", list("The command and its arguments.", 64, text("A word.", 4096)))],
                    ),
                ),
                (
                    "grpc",
                    object(
                        "Asks by gRPC's health protocol.",
                        &["port"],
                        vec![
                            ("port", port("The number.")),
                            ("service", text("Which service is asked about.", 253)),
                        ],
                    ),
                ),
                ("initialDelaySeconds", integer("Not earlier than this after the start.", 0, 86_400)),
                ("periodSeconds", integer("How often; 10 unless told otherwise.", 1, 86_400)),
                (
                    "timeoutSeconds",
                    integer("How long an answer may take; 1 unless told otherwise.", 1, 86_400),
                ),
                (
                    "successThreshold",
                    integer("So many good answers in a row are needed after a bad one.", 1, 1000),
                ),
                (
                    "failureThreshold",
                    integer("So many bad answers in a row are needed; 3 unless told otherwise.", 1, 1000),
                ),
            ],
        ),
    )
}

fn security_context() -> Value {
    let id = |about: &str| json!({"type": "integer", "format": "int64", "minimum": 0, "maximum": 2_147_483_647, "description": about});
    object(
        "User, group and rights, of pod and container in one.",
        &[],
        vec![
            ("runAsNonRoot", flag("Refuse to run as root.")),
            ("runAsUser", id("The user's number.")),
            ("runAsGroup", id("The group's number.")),
            ("fsGroup", id("The group that volumes belong to.")),
            ("supplementalGroups", list("More groups.", 32, id("A group's number."))),
            (
                "seccompProfile",
                object(
                    "Which system calls are allowed.",
                    &["type"],
                    vec![
                        ("type", choice("Which profile.", &["RuntimeDefault", "Unconfined", "Localhost"])),
                        ("localhostProfile", text("The file on the node, for Localhost.", 512)),
                    ],
                ),
            ),
            ("allowPrivilegeEscalation", flag("Whether a process may gain more rights than its parent has.")),
            ("readOnlyRootFilesystem", flag("Whether the image's files cannot be changed.")),
            ("privileged", flag("Whether it has all rights of the node.")),
            (
                "capabilities",
                object(
                    "Single rights.",
                    &[],
                    vec![
                        ("add", list("Rights that are given.", 64, text("A right.", 64))),
                        ("drop", list("Rights that are taken away.", 64, text("A right.", 64))),
                    ],
                ),
            ),
        ],
    )
}

fn status() -> Value {
    let number = |about: &str| json!({"type": "integer", "format": "int32", "description": about});
    let word = |about: &str| json!({"type": "string", "description": about});
    object(
        "What is, as far as the operator has seen.",
        &[],
        vec![
            (
                "phase",
                word(
                    "In a word: Creating, Running, Scaling, Updating, Failed, Suspended, Paused or Deleting.",
                ),
            ),
            (
                "observedGeneration",
                json!({"type": "integer", "format": "int64", "description": "The generation of the specification that all of this is about."}),
            ),
            ("replicas", number("Pods that exist.")),
            ("readyReplicas", number("Pods that are ready.")),
            ("updatedReplicas", number("Pods of the current template.")),
            ("availableReplicas", number("Pods that have been ready for long enough.")),
            ("desiredReplicas", number("Pods that are wanted, by the specification or by the autoscaler.")),
            ("settledReplicas", number("Pods that there were when last all was as wanted.")),
            ("ready", word("Pods that are ready, and that are wanted.")),
            ("scaling", word("Fewest and most pods of automatic scaling.")),
            ("selector", word("The label selector of the pods.")),
            ("url", word("Where it is reached.")),
            ("image", word("The image that runs.")),
            ("currentRevision", word("The template that is rolled out, by a hash.")),
            ("lastGoodRevision", word("The last template that worked.")),
            (
                "failedRevision",
                word("The template that failed. It is not tried again until the specification changes."),
            ),
            ("failedReason", word("Why it failed.")),
            (
                "conditions",
                json!({
                    "type": "array", "description": "Details. Ready is true when all is as wanted; Stalled when nothing goes on without help.",
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object", "description": "What is true, and since when.",
                        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
                        "properties": {
                            "type": word("What it is about."),
                            "status": word("True, False or Unknown."),
                            "reason": word("Why, in a word."),
                            "message": word("Why, in a sentence."),
                            "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Since when."},
                            "observedGeneration": {"type": "integer", "format": "int64", "description": "The generation that it is about."},
                        },
                    },
                }),
            ),
            (
                "children",
                list(
                    "The objects that were made.",
                    100,
                    object(
                        "An object of the namespace.",
                        &["kind", "name"],
                        vec![("kind", word("Its kind.")), ("name", word("Its name."))],
                    ),
                ),
            ),
        ],
    )
}

/// The schema with the rules of that place.
fn at(place: &str, mut schema: Value) -> Value {
    let rules: Vec<Value> = rules::RULES
        .iter()
        .filter(|rule| rule.at == place)
        .map(|rule| json!({"rule": rule.cel, "message": rule.message}))
        .collect();
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = Value::Array(rules);
    }
    schema
}

fn object(about: &str, required: &[&str], fields: Vec<(&str, Value)>) -> Value {
    let properties: serde_json::Map<String, Value> =
        fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    let mut schema = json!({"type": "object", "description": about, "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// An object that Kubernetes describes elsewhere.
fn open(about: &str) -> Value {
    json!({"type": "object", "description": about, "x-kubernetes-preserve-unknown-fields": true})
}

fn list(about: &str, most: u32, item: Value) -> Value {
    json!({"type": "array", "description": about, "maxItems": most, "items": item, "x-kubernetes-list-type": "atomic"})
}

fn map_list(about: &str, keys: &[&str], most: u32, item: Value) -> Value {
    let mut schema = list(about, most, item);
    schema["x-kubernetes-list-type"] = json!("map");
    schema["x-kubernetes-list-map-keys"] = json!(keys);
    schema
}

fn text(about: &str, longest: u32) -> Value {
    json!({"type": "string", "description": about, "maxLength": longest})
}

fn pattern(mut schema: Value, pattern: &str) -> Value {
    schema["pattern"] = json!(pattern);
    schema["minLength"] = json!(1);
    schema
}

fn choice(about: &str, values: &[&str]) -> Value {
    json!({"type": "string", "description": about, "enum": values})
}

fn flag(about: &str) -> Value {
    json!({"type": "boolean", "description": about})
}

fn integer(about: &str, least: i32, most: i32) -> Value {
    json!({"type": "integer", "format": "int32", "description": about, "minimum": least, "maximum": most})
}

fn port(about: &str) -> Value {
    integer(about, 1, 65_535)
}

fn default(mut schema: Value, value: Value) -> Value {
    schema["default"] = value;
    schema
}

fn number_or_text(about: &str) -> Value {
    json!({"description": about, "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
}

fn number_or_percent(about: &str) -> Value {
    let mut schema = number_or_text(&format!("{about} A number, or a part of all such as 25%."));
    schema["pattern"] = json!("^[0-9]+%?$");
    schema["maxLength"] = json!(10);
    schema
}

fn quantity(about: &str) -> Value {
    let mut schema = number_or_text(about);
    schema["pattern"] =
        json!(r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$");
    schema["maxLength"] = json!(32);
    schema
}

fn quantities(about: &str) -> Value {
    let value = quantity("An amount.");
    json!({"type": "object", "description": about, "maxProperties": 16, "additionalProperties": value})
}

fn texts_by_name(about: &str) -> Value {
    let value = json!({"type": "string", "maxLength": 4096});
    json!({"type": "object", "description": about, "maxProperties": 64, "additionalProperties": value})
}
