//! Everything at once, for a while; then: never two, and everything done.

use std::time::Duration;

use crate::harness::{World, settled, within};

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
