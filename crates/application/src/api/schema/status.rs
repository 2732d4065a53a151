//! What the operator says.

use serde_json::{Value, json};

use super::{flag, list, object};

pub(super) fn status() -> Value {
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
            ("recovering", flag("It had failed, and is on its way to run again.")),
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
