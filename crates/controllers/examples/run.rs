//! Runs the controllers against a cluster.
use shoal_controllers::*;
use shoal_objects::clock::Clock;
use shoal_objects::entropy::Entropy;
use shoal_runtime::Manager;

#[tokio::main]
async fn main() {
    let mut manager = Manager::builder("controllers").embedded().build().await.unwrap();
    let (clock, entropy) = (Clock::system(), Entropy::system());
    manager.add(deployment::controller(clock.clone()));
    manager.add(replicaset::controller(clock.clone(), entropy.clone()));
    manager.add(endpoints::controller());
    manager.add(endpoints::slice_controller(entropy.clone()));
    manager.add(endpoints::mirroring_controller(entropy.clone()));
    manager.add(job::controller(clock.clone(), entropy.clone()));
    manager.add(statefulset::controller(clock.clone()));
    manager.add(daemonset::controller(clock.clone(), entropy.clone()));
    manager.add(cronjob::controller(clock.clone()));
    manager.add(disruption::controller(clock.clone()));
    manager.run().await.unwrap();
}
