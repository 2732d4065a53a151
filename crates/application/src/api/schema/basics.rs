//! What most Applications say.

use serde_json::{Value, json};

use super::parts::{claim, probe, security_context};
use super::{
    at, choice, default, integer, list, map_list, object, open, pattern, port, quantities, text,
    texts_by_name,
};

pub(super) fn basics() -> Vec<(&'static str, Value)> {
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
