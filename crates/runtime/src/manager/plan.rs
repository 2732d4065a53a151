//! Who waits for whom, checked before anything starts.

use std::collections::BTreeMap;

use super::component::{Component, Stage};
use crate::nearest::nearest;

/// Components that cannot be started together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two components have one name.
    #[error("two components are called {name:?}: give one of them another name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A need that nobody fills.
    #[error("component {name:?} needs {needs:?}, which is not there{}", hint.as_ref().map(|hint| format!(": did you mean {hint:?}?")).unwrap_or_else(|| ": add it to the manager or drop the need".to_owned()))]
    Unknown {
        /// Who needs it.
        name: String,
        /// What is needed.
        needs: String,
        /// A name that is nearly the same.
        hint: Option<String>,
    },
    /// Components that wait for each other.
    #[error("components wait for each other and none could start: {}; drop one of these needs", path.join(" needs "))]
    Cycle {
        /// The names around the circle; the first is also the last.
        path: Vec<String>,
    },
    /// A need that is only filled on the leader.
    #[error(
        "component {name:?} runs on every replica but needs {needs:?}, which runs on the leader only: make both elected or neither"
    )]
    OnlyOnLeader {
        /// Who needs it.
        name: String,
        /// What is needed.
        needs: String,
    },
    /// A cache that waits for a controller.
    #[error(
        "cache {name:?} needs {needs:?}, but controllers start only when all caches are ready: drop the need"
    )]
    CacheNeedsController {
        /// Who needs it.
        name: String,
        /// What is needed.
        needs: String,
    },
}

/// For every component the indexes of those it needs.
pub(super) fn needs(components: &[Component]) -> Result<Vec<Vec<usize>>, PlanError> {
    let mut names = BTreeMap::new();
    for (index, component) in components.iter().enumerate() {
        if names.insert(component.name.as_str(), index).is_some() {
            return Err(PlanError::Duplicate { name: component.name.clone() });
        }
    }
    let mut needs = Vec::with_capacity(components.len());
    for component in components {
        let mut mine = Vec::with_capacity(component.needs.len());
        for need in &component.needs {
            let pair = || (component.name.clone(), need.clone());
            let Some(index) = names.get(need.as_str()) else {
                let hint = nearest(need, names.keys().copied()).map(str::to_owned);
                let (name, needs) = pair();
                return Err(PlanError::Unknown { name, needs, hint });
            };
            let other = &components[*index];
            let (name, needs) = pair();
            if other.elected && !component.elected {
                return Err(PlanError::OnlyOnLeader { name, needs });
            }
            if other.stage > component.stage && component.stage == Stage::Cache {
                return Err(PlanError::CacheNeedsController { name, needs });
            }
            mine.push(*index);
        }
        needs.push(mine);
    }
    match circle(&needs) {
        Some(circle) => Err(PlanError::Cycle {
            path: circle.iter().map(|index| components[*index].name.clone()).collect(),
        }),
        None => Ok(needs),
    }
}

/// A circle in the graph, from some index back to it. Walks without recursion: input may be deep.
fn circle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; edges.len()];
    for start in 0..edges.len() {
        if marks[start] != Mark::New {
            continue;
        }
        // The path from the start, with the position of the next edge to follow.
        let mut path = vec![(start, 0)];
        marks[start] = Mark::OnPath;
        while let Some((node, next)) = path.last_mut() {
            let Some(target) = edges[*node].get(*next).copied() else {
                marks[*node] = Mark::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match marks[target] {
                Mark::Done => {}
                Mark::New => {
                    marks[target] = Mark::OnPath;
                    path.push((target, 0));
                }
                Mark::OnPath => {
                    let from = path.iter().position(|(node, _)| *node == target).unwrap_or(0);
                    return Some(path[from..].iter().map(|(node, _)| *node).chain([target]).collect());
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn component(name: &str, needs: &[&str]) -> Component {
        let mut component = Component::new(name, |_| async { Ok(()) });
        component.needs = needs.iter().map(|need| (*need).to_owned()).collect();
        component
    }

    #[test]
    fn a_need_that_is_not_there_is_refused_with_the_nearest_name() {
        let error =
            needs(&[component("replicaset", &[]), component("deployment", &["replicasets"])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"component "deployment" needs "replicasets", which is not there: did you mean "replicaset"?"#
        );
    }

    #[test]
    fn components_that_wait_for_each_other_are_refused_with_the_circle() {
        let error = needs(&[
            component("x", &["a"]),
            component("a", &["b"]),
            component("b", &["c"]),
            component("c", &["a"]),
        ])
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "components wait for each other and none could start: a needs b needs c needs a; drop one of these needs"
        );
        let error = needs(&[component("a", &["a"])]).unwrap_err();
        assert_eq!(error, PlanError::Cycle { path: vec!["a".to_owned(), "a".to_owned()] });
    }

    #[test]
    fn two_components_of_one_name_are_refused() {
        let error = needs(&[component("a", &[]), component("a", &[])]).unwrap_err();
        assert_eq!(error, PlanError::Duplicate { name: "a".to_owned() });
    }

    #[test]
    fn what_runs_everywhere_cannot_need_what_runs_on_the_leader() {
        let error = needs(&[component("a", &["b"]), component("b", &[]).elected()]).unwrap_err();
        assert!(matches!(error, PlanError::OnlyOnLeader { .. }));
        assert!(needs(&[component("a", &["b"]).elected(), component("b", &[])]).is_ok());
    }

    #[test]
    fn a_cache_cannot_need_a_controller() {
        let error = needs(&[component("a", &["b"]).cache(), component("b", &[])]).unwrap_err();
        assert!(matches!(error, PlanError::CacheNeedsController { .. }));
    }

    proptest! {
        #[test]
        fn exactly_the_graphs_with_an_order_are_accepted(edges in prop::collection::vec((0usize..8, 0usize..8), 0..20)) {
            let mut graph = vec![Vec::new(); 8];
            for (from, to) in edges {
                graph[from].push(to);
            }
            // Reference: take away nodes without needs until nothing is left or nothing can be taken.
            let mut left: Vec<usize> = (0..8).collect();
            while let Some(at) = left.iter().position(|node| graph[*node].iter().all(|need| !left.contains(need))) {
                left.remove(at);
            }
            match circle(&graph) {
                None => prop_assert!(left.is_empty()),
                Some(circle) => {
                    prop_assert!(!left.is_empty());
                    prop_assert_eq!(circle.first(), circle.last());
                    prop_assert!(circle.windows(2).all(|pair| graph[pair[0]].contains(&pair[1])));
                }
            }
        }
    }
}
