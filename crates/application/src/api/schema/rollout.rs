//! How changes come into effect, and what happens in the end.

use serde_json::{Value, json};

use super::{at, choice, default, flag, integer, number_or_percent, object};

pub(super) fn rollout() -> Vec<(&'static str, Value)> {
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
