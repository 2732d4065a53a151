//! Where pods run and how they are marked.

use serde_json::{Value, json};

use super::{choice, list, object, open, text, texts_by_name};

pub(super) fn placement() -> Vec<(&'static str, Value)> {
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
