//! Requests whose answer nobody wants to read.

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;

/// Sends a request and looks only at how it went. The object in the answer is neither collected nor decoded: for a
/// client of many small writes that is half of the work.
pub async fn send_unread(client: &Client, request: Request<Vec<u8>>) -> Result<(), kube::Error> {
    let response = client.send(request.map(Body::from)).await?;
    if response.status().is_success() {
        let mut body = response.into_body();
        // Read to its end, so that the connection can be used again.
        while let Some(frame) = body.frame().await {
            frame?;
        }
        return Ok(());
    }
    Err(refusal(response).await)
}

async fn refusal(response: Response<Body>) -> kube::Error {
    let code = response.status().as_u16();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return error,
    };
    let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        Status::failure(&text, "Failed to parse error data").with_code(code)
    });
    kube::Error::Api(Box::new(status))
}
