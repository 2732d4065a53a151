//! Ports of the node that lead to a pod: what containers name as `hostPort`.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::pod::plan::containers;

/// A port of the node, and the port of the pod it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Where the node listens.
    pub host: SocketAddr,
    /// The container's port.
    pub port: u16,
}

/// The ports that a pod wants on the node, TCP only; pods in the host's network have theirs anyway.
pub fn wanted(pod: &Pod, host_ip: &str) -> Vec<HostPort> {
    if pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true) {
        return Vec::new();
    }
    let (init, main) = containers(pod);
    let ports = init.iter().chain(main).flat_map(|container| container.ports.iter().flatten());
    let tcp = ports.filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let found = tcp.filter_map(|port| {
        let ip = port.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or(host_ip);
        let ip: IpAddr = ip.parse().ok()?;
        let number = u16::try_from(port.host_port?).ok().filter(|number| *number > 0)?;
        let host = SocketAddr::new(ip, number);
        Some(HostPort { host, port: u16::try_from(port.container_port).ok()? })
    });
    found.collect()
}

/// Listens for a pod; its ports are free again when this is dropped.
pub struct HostPorts {
    _listening: JoinSet<()>,
}

impl HostPorts {
    /// Takes the ports; an error names the one that cannot be had.
    pub async fn open(wanted: &[HostPort], pod_ip: &str) -> Result<HostPorts, String> {
        let mut listening = JoinSet::new();
        let ip: IpAddr = pod_ip.parse().map_err(|e| format!("the pod has no address: {e}"))?;
        for HostPort { host, port } in wanted {
            let listener = TcpListener::bind(host).await.map_err(|e| {
                format!("cannot take the host port {host}: {e}; free it, or choose another hostPort")
            })?;
            listening.spawn(serve(listener, SocketAddr::new(ip, *port)));
        }
        Ok(HostPorts { _listening: listening })
    }
}

async fn serve(listener: TcpListener, pod: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            // Too many open files, most likely.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(pod).await {
                // How a conversation ends is up to the two.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_ports_that_name_a_host_port_are_wanted() {
        let ports = json!([
            {"containerPort": 80},
            {"containerPort": 81, "hostPort": 8081},
            {"containerPort": 82, "hostPort": 8082, "hostIP": "127.0.0.2"},
            {"containerPort": 53, "hostPort": 5353, "protocol": "UDP"},
        ]);
        let spec = json!({"containers": [{"name": "a", "ports": ports}]});
        let mut pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let port = |host: &str, port| HostPort { host: host.parse().unwrap(), port };
        let expected = [port("127.0.0.1:8081", 81), port("127.0.0.2:8082", 82)];
        assert_eq!(wanted(&pod, "127.0.0.1"), expected);
        pod.spec.as_mut().unwrap().host_network = Some(true);
        assert!(wanted(&pod, "127.0.0.1").is_empty());
    }
}
