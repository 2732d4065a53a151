//! From a definition to the first object of its kind.

use std::time::Instant;

use anyhow::Result;

use super::bodies;
use super::client::{H2, Target};

/// Milliseconds from before a definition is sent to the answer that its first object was created, over the given number
/// of definitions. The object is sent with the very next request; that it is refused is an error.
pub async fn first_objects(target: &Target, connection: &mut H2, count: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let (definition, path, object) = bodies::definition(number);
        let began = Instant::now();
        target.create(connection, DEFINITIONS, definition).await?;
        target.create(connection, &path, object).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
