//! What can be set, and which timers are refused because they would not be safe together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::Identity;
use crate::time::stretched;

/// Everything that a replica is told at its start or by a reload.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What all replicas must have in common.
    pub identity: Arc<Identity>,
    /// Name without the random part.
    pub name: Arc<str>,
    /// Where metrics are served.
    pub address: Arc<str>,
    /// Template that this replica was made from, such as `pod-template-hash`.
    pub revision: Arc<str>,
    /// Share of the slots: 100 is one, 0 takes none.
    pub weight: u32,
    /// Timers.
    pub timers: Timers,
    /// When and how much is moved for balance.
    pub rebalancing: Rebalancing,
}

/// Timers by the names of the configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Timers {
    /// `state.leaseDuration`: how long others wait for a silent replica.
    pub lease_duration: Duration,
    /// `state.renewDeadline`: how long a replica works on after it sent its last successful renewal.
    pub renew_deadline: Duration,
    /// `state.retryPeriod`: time between two renewals.
    pub retry_period: Duration,
    /// `state.clockDrift`: by how much one replica's clock may run faster than another's.
    pub clock_drift: f64,
    /// `state.syncInterval`: time between two complete reads.
    pub sync_interval: Duration,
    /// `node.healthCheckInterval`
    pub health_check_interval: Duration,
    /// `node.healthCheckTimeout`
    pub health_check_timeout: Duration,
    /// `node.nodeTimeout`: no Lease of the group lasts longer; so long a replica is waited for that left no trace.
    pub node_timeout: Duration,
    /// `sharding.warmTimeout`: a move is given up when the next owner is not ready by then.
    pub warm_timeout: Duration,
}

/// When and how much is moved for balance.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebalancing {
    /// `sharding.rebalanceThreshold`: how far from the mean a replica must be before anything moves.
    pub threshold: f64,
    /// `sharding.rebalanceInterval`: time between two looks at the balance.
    pub interval: Duration,
    /// `sharding.moveBudget`: how many slots may be on the move at once for balance alone.
    pub budget: u32,
    /// `sharding.replacementGrace`: how long newcomers of a new revision wait for those they replace.
    pub replacement_grace: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            clock_drift: 0.01,
            sync_interval: Duration::from_secs(10),
            health_check_interval: Duration::from_secs(10),
            health_check_timeout: Duration::from_secs(5),
            node_timeout: Duration::from_secs(60),
            warm_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Rebalancing {
    fn default() -> Self {
        Rebalancing {
            threshold: 0.1,
            interval: Duration::from_secs(30),
            budget: 128,
            replacement_grace: Duration::from_secs(60),
        }
    }
}

/// A setting that is refused: which one, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BadSetting {
    /// The key in the configuration file.
    pub key: &'static str,
    /// Why, and what to do.
    pub message: String,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl Timers {
    /// The time between a replica's deadline and the end of its Lease: so long may stopping take.
    pub fn margin(&self) -> Duration {
        self.lease_duration.saturating_sub(self.renew_deadline)
    }

    /// How long to wait for a Lease of that duration.
    pub fn patience(&self, duration: Duration) -> Duration {
        stretched(duration, 1.0 + self.clock_drift)
    }

    /// How long the slots of a replica that crashes are without an owner at most, on a server that answers at once: its Lease must have
    /// stood still for long enough, and whoever is next in turn ends it and changes the record.
    pub fn takeover(&self) -> Duration {
        self.patience(self.lease_duration) + self.retry_period * 2
    }

    /// Everything wrong with these timers.
    pub fn validate(&self) -> Result<(), Vec<BadSetting>> {
        let mut bad = Vec::new();
        let mut refuse = |wrong: bool, key: &'static str, message: String| {
            if wrong {
                bad.push(BadSetting { key, message });
            }
        };
        let s = |d: Duration| format!("{}s", d.as_secs_f64());
        for (key, value) in [
            ("state.leaseDuration", self.lease_duration),
            ("state.renewDeadline", self.renew_deadline),
            ("state.retryPeriod", self.retry_period),
            ("state.syncInterval", self.sync_interval),
            ("node.healthCheckInterval", self.health_check_interval),
            ("node.healthCheckTimeout", self.health_check_timeout),
            ("node.nodeTimeout", self.node_timeout),
            ("sharding.warmTimeout", self.warm_timeout),
        ] {
            refuse(value < Duration::from_millis(1), key, "must be at least 1ms".to_owned());
            refuse(value > Duration::from_secs(86_400), key, "must be at most a day".to_owned());
        }
        refuse(
            !(0.0..=0.5).contains(&self.clock_drift),
            "state.clockDrift",
            format!("{} is not between 0 and 0.5; 0.01 is plenty for real clocks", self.clock_drift),
        );
        refuse(
            self.lease_duration < Duration::from_secs(1),
            "state.leaseDuration",
            format!("{} is too short for a Lease; use 1s or more", s(self.lease_duration)),
        );
        refuse(
            self.renew_deadline >= self.lease_duration,
            "state.renewDeadline",
            format!(
                "{} must be less than state.leaseDuration ({}): a replica has to stop before another may start; \
                 lower it, two thirds of the lease are usual",
                s(self.renew_deadline),
                s(self.lease_duration)
            ),
        );
        refuse(
            self.retry_period.saturating_mul(2) > self.renew_deadline,
            "state.retryPeriod",
            format!(
                "{} leaves no second try within state.renewDeadline ({}); lower it to at most half of that",
                s(self.retry_period),
                s(self.renew_deadline)
            ),
        );
        let longest = Duration::try_from_secs_f64(
            self.lease_duration.as_secs_f64() * (1.0 + self.clock_drift.clamp(0.0, 0.5)),
        )
        .unwrap_or(Duration::MAX);
        refuse(
            longest > self.node_timeout,
            "node.nodeTimeout",
            format!(
                "{} is shorter than a Lease may last ({}); raise it or lower state.leaseDuration",
                s(self.node_timeout),
                s(longest)
            ),
        );
        refuse(
            self.health_check_timeout >= self.health_check_interval,
            "node.healthCheckTimeout",
            format!(
                "{} must be less than node.healthCheckInterval ({}), or checks overlap; lower it",
                s(self.health_check_timeout),
                s(self.health_check_interval)
            ),
        );
        refuse(
            self.health_check_interval > self.node_timeout,
            "node.healthCheckInterval",
            format!(
                "{} must not be more than node.nodeTimeout ({}); lower it",
                s(self.health_check_interval),
                s(self.node_timeout)
            ),
        );
        if bad.is_empty() { Ok(()) } else { Err(bad) }
    }
}

impl Settings {
    /// Everything wrong with these settings.
    pub fn validate(&self) -> Result<(), Vec<BadSetting>> {
        let mut bad = self.timers.validate().err().unwrap_or_default();
        let mut refuse = |wrong: bool, key: &'static str, message: &str| {
            if wrong {
                bad.push(BadSetting { key, message: message.to_owned() });
            }
        };
        let rebalancing = &self.rebalancing;
        refuse(
            !(0.0..=10.0).contains(&rebalancing.threshold),
            "sharding.rebalanceThreshold",
            "must be between 0 and 10; 0.1 moves slots when a replica is a tenth off the mean",
        );
        refuse(
            rebalancing.interval < Duration::from_secs(1),
            "sharding.rebalanceInterval",
            "must be at least 1s: moving more often costs more than it gains",
        );
        refuse(
            rebalancing.budget == 0,
            "sharding.moveBudget",
            "must be at least 1, or nothing is ever balanced",
        );
        refuse(self.identity.group.is_empty(), "sharding.group", "must name the group");
        refuse(self.name.is_empty(), "node.name", "must name the replica");
        if bad.is_empty() { Ok(()) } else { Err(bad) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_safe() {
        Timers::default().validate().unwrap();
        assert_eq!(Timers::default().margin(), Duration::from_secs(5));
    }

    #[test]
    fn timers_that_are_not_safely_ordered_are_refused_by_name() {
        let secs = Duration::from_secs;
        type Change = fn(&mut Timers, Duration);
        let cases: [(&str, Change); 5] = [
            ("state.renewDeadline", |t, d| t.renew_deadline = d),
            ("state.retryPeriod", |t, d| t.retry_period = d),
            ("node.nodeTimeout", |t, _| t.node_timeout = Duration::from_secs(15)),
            ("node.healthCheckTimeout", |t, d| t.health_check_timeout = d),
            ("state.clockDrift", |t, _| t.clock_drift = f64::NAN),
        ];
        for (key, change) in cases {
            let mut timers = Timers::default();
            change(&mut timers, secs(15));
            let bad = timers.validate().unwrap_err();
            assert!(bad.iter().any(|bad| bad.key == key), "{key}: {bad:?}");
        }
        let zero = Timers { lease_duration: Duration::ZERO, ..Timers::default() };
        assert!(zero.validate().unwrap_err().iter().any(|bad| bad.key == "state.leaseDuration"));
        let endless = Timers { lease_duration: Duration::MAX, ..Timers::default() };
        assert!(endless.validate().is_err());
    }
}
