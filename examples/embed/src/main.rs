//! A Kubernetes API server inside another program: used in process first, then served to everybody over TLS.

use http::Request;
use shoal_apiserver::access::{UserInfo, pki::Pki};
use shoal_apiserver::{Options, Server, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys = Pki::in_memory(&[], shoal_objects::Clock::system().now())?;
    let store = shoal_store::Store::memory(shoal_store::Options::default());
    let server = Server::start(Options::new(store, keys.service_account_key().to_vec())).await?;

    let me = UserInfo::authenticated("me", &["system:masters"]);
    let request = Request::get("/api/v1/namespaces/default").extension(me).body(String::new())?;
    println!("in process: {}", server.handle(request).await.status());

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("serving https://{}", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    serve::serve(listener, serve::server_config(&keys)?, server, serve::Limits::default(), stop).await;
    Ok(())
}
