//! Everything at once, for a while; then: never two, and everything done.

use std::time::Duration;

use kube::api::DeleteParams;
use shoal_objects::Entropy;
use shoal_testkit::{Abilities, Effect, Rule};

use crate::harness::{Replica, World, settled, within};

const OBJECTS: usize = 200;

#[tokio::test(start_paused = true)]
async fn three_replicas_share_hundreds_of_objects_under_change_without_overlap_or_gap() {
    let world = World::new().await;
    world.create(OBJECTS).await;
    let (a, b, c) = (world.replica("a").await, world.replica("b").await, world.replica("c").await);
    settled(&[&a, &b, &c]).await;
    let mut round = 0;
    let mut change = async |seconds: u64| {
        for _ in 0..seconds * 2 {
            round += 1;
            for index in (round % 7..OBJECTS).step_by(7) {
                world.set(&format!("map-{index}"), &format!("r{round}")).await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    change(3).await;
    let d = world.replica("d").await;
    change(5).await;
    a.crash().await;
    change(5).await;
    b.cut_off();
    change(10).await;
    b.reconnect();
    change(5).await;
    c.stop().await;
    let e = world.replica("e").await;
    change(5).await;
    settled(&[&b, &d, &e]).await;
    world.set_all(OBJECTS, "end").await;
    within(10, "every object is done", || world.all_at(OBJECTS, "end")).await;
    world.intervals.check();
    for replica in [b, d, e] {
        replica.stop().await;
    }
    world.intervals.check();
}

/// One world of random mischief; the seed tells which.
async fn mischief(seed: u64) {
    const COUNT: usize = 40;
    let chance = Entropy::seeded(seed);
    let world = World::seeded(seed, Abilities::default()).await;
    world.create(COUNT).await;
    let mut replicas = vec![world.replica("r0").await, world.replica("r1").await];
    let mut born = 2;
    for round in 0..14 {
        let at = chance.below(replicas.len() as u64) as usize;
        match chance.below(9) {
            0 if replicas.len() > 1 => replicas.swap_remove(at).crash().await,
            1 if replicas.len() > 1 => replicas.swap_remove(at).stop().await,
            2 | 3 if replicas.len() < 4 => {
                replicas.push(world.replica(&format!("r{born}")).await);
                born += 1;
            }
            4 => replicas[at].cut_off(),
            5 => replicas.iter().for_each(Replica::reconnect),
            6 => {
                if let Some(id) = replicas[at].sharding.id() {
                    let _ = world.leases().delete(id.as_str(), &DeleteParams::default()).await;
                }
            }
            7 => replicas[at].faults.add(Rule::writes(Effect::DropAfter).percent(30)),
            8 => replicas[at].faults.add(Rule::all(Effect::Delay(Duration::from_millis(1_500))).percent(30)),
            _ => {}
        }
        let pause = chance.below(9_000);
        world.set_all(COUNT, &format!("{seed}-{round}")).await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    replicas.iter().for_each(Replica::reconnect);
    settled(&replicas.iter().collect::<Vec<_>>()).await;
    world.set_all(COUNT, "end").await;
    // A replica may not know yet that its Lease was deleted; others then wait as long as any Lease may last.
    within(45, "every object is done", || world.all_at(COUNT, "end")).await;
    for replica in replicas {
        replica.stop().await;
    }
    world.intervals.check();
}

#[test]
fn random_mischief_never_makes_two_owners_and_everything_is_done_after_it() {
    // Each world has a thread and a time of its own.
    let live = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(mischief(seed));
    };
    std::thread::scope(|threads| {
        for seed in 0..8 {
            threads.spawn(move || live(seed));
        }
    });
}
