//! The parts of a cluster that `--only` and `--without` choose from.

use clap::ValueEnum;

/// Something that runs beside the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    Controllers,
    Scheduler,
    Node,
    Metrics,
    Application,
    Etcd,
    Kubeocean,
    Console,
}

/// Whether a part is wanted: one of `only`, if that is given, and none of `without`.
pub fn is_wanted(part: Part, only: Option<&[Part]>, without: &[Part]) -> bool {
    only.is_none_or(|only| only.contains(&part)) && !without.contains(&part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_takes_away_from_only() {
        let only = [Part::Node, Part::Scheduler];
        assert!(is_wanted(Part::Node, None, &[]));
        assert!(!is_wanted(Part::Node, None, &[Part::Node]));
        assert!(is_wanted(Part::Node, Some(&only), &[Part::Scheduler]));
        assert!(!is_wanted(Part::Scheduler, Some(&only), &[Part::Scheduler]));
        assert!(!is_wanted(Part::Console, Some(&only), &[]));
        assert!(!is_wanted(Part::Console, Some(&[]), &[]));
    }
}
