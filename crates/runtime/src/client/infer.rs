//! Finding the cluster: a kubeconfig that is named, the one in the home folder, or the pod's own service account.
//!
//! Kubeconfigs may hold tokens, client certificates and exec plugins. The token of a service account is read again as
//! the kubelet rotates it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::token::TokenFile;
use super::{Options, authorized};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `KUBECONFIG`: one or more files, merged.
    pub kubeconfig: Option<OsString>,
    /// The file in the home folder, if there is one.
    pub home: Option<PathBuf>,
    /// Whether this is a pod: `KUBERNETES_SERVICE_HOST` is set.
    pub in_cluster: bool,
    /// The context of the kubeconfig; None for its current one.
    pub context: Option<String>,
}

/// No cluster was found, or what was found cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to go by.
    #[error(
        "no cluster to talk to: KUBECONFIG is not set, {home} is not there, and this is not a pod \
         (KUBERNETES_SERVICE_HOST is not set); set KUBECONFIG to a kubeconfig file"
    )]
    Nothing {
        /// The file that was looked for.
        home: String,
    },
    /// A kubeconfig is there but cannot be used.
    #[error(
        "the kubeconfig {file} ({why}) cannot be used: {source}; check it with kubectl --kubeconfig {file} version"
    )]
    Kubeconfig {
        /// The file or files.
        file: String,
        /// Why this one.
        why: &'static str,
        /// What is wrong.
        source: Box<kube::config::KubeconfigError>,
    },
    /// This is a pod, but its service account cannot be used.
    #[error(
        "this is a pod, but its service account cannot be used: {source}; check that \
         automountServiceAccountToken is not false"
    )]
    InCluster {
        /// What is wrong.
        source: Box<kube::config::InClusterError>,
    },
    /// The file with the token cannot be read.
    #[error("the token in {file} cannot be used: {source} ({from})")]
    Token {
        /// The file.
        file: String,
        /// Where the settings are from.
        from: String,
        /// What is wrong.
        source: std::io::Error,
    },
    /// The way to log in does not work: a certificate, a token file or an exec plugin.
    #[error(
        "the client for {server} cannot be made: {source}; check certificates, token files and exec plugins ({from})"
    )]
    Client {
        /// The server.
        server: String,
        /// Where the settings are from.
        from: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
}

/// A client for the cluster that kubectl would use here, or that this pod runs in.
pub async fn infer(options: &Options) -> Result<Client, Error> {
    infer_from(&Places::of_this_process(), options).await
}

/// The same, looking in given places.
pub async fn infer_from(places: &Places, options: &Options) -> Result<Client, Error> {
    let (mut config, from) = config(places).await?;
    if let Ok(agent) = http::HeaderValue::from_str(&options.user_agent) {
        config.headers.push((http::header::USER_AGENT, agent));
    }
    // As kubectl has it: the file goes before a token that stands beside it.
    let token = match config.auth_info.token_file.take() {
        Some(file) => {
            config.auth_info.token = None;
            let opened = TokenFile::open(PathBuf::from(&file));
            Some(opened.map_err(|source| Error::Token { file, from: from.clone(), source })?)
        }
        None => None,
    };
    let server = config.cluster_url.to_string();
    tracing::info!(server, from, "connecting to the cluster");
    let client = Client::try_from(config).map_err(|source| Error::Client {
        server,
        from,
        source: Box::new(source),
    })?;
    Ok(authorized(client, token, options))
}

impl Places {
    /// Where this process has to look.
    pub fn of_this_process() -> Places {
        Places {
            kubeconfig: env::var_os("KUBECONFIG").filter(|value| !value.is_empty()),
            home: env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config")),
            in_cluster: env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            context: None,
        }
    }
}

async fn config(places: &Places) -> Result<(Config, String), Error> {
    if let Some(value) = &places.kubeconfig {
        let files: Vec<PathBuf> =
            env::split_paths(value).filter(|path| !path.as_os_str().is_empty()).collect();
        return from_files(&files, "from KUBECONFIG", places).await;
    }
    if let Some(home) = places.home.as_ref().filter(|home| home.exists()) {
        return from_files(std::slice::from_ref(home), "from the home folder", places).await;
    }
    if places.in_cluster {
        let config = Config::incluster().map_err(|source| Error::InCluster { source: Box::new(source) })?;
        return Ok((config, "the pod's service account".to_owned()));
    }
    let home = places.home.as_ref().map_or("~/.kube/config".to_owned(), |home| home.display().to_string());
    Err(Error::Nothing { home })
}

async fn from_files(
    files: &[PathBuf],
    why: &'static str,
    places: &Places,
) -> Result<(Config, String), Error> {
    let shown = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(":");
    let wrong = |source| Error::Kubeconfig { file: shown.clone(), why, source: Box::new(source) };
    let merged = files
        .iter()
        .try_fold(Kubeconfig::default(), |merged, file| {
            Kubeconfig::read_from(file).and_then(|next| merged.merge(next))
        })
        .map_err(wrong)?;
    let options = KubeConfigOptions { context: places.context.clone(), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(merged, &options).await.map_err(wrong)?;
    Ok((config, format!("the kubeconfig {shown}, {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: dev
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: USER}]
contexts:
- {name: dev, context: {cluster: c, user: u, namespace: team-a}}
"#;

    fn kubeconfig(user: &str) -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, KUBECONFIG.replace("USER", user)).unwrap();
        let places = Places { kubeconfig: Some(file.into_os_string()), ..Places::default() };
        (folder, places)
    }

    async fn error(places: &Places) -> String {
        infer_from(places, &Options::default()).await.map(|_| ()).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn without_anything_to_go_by_every_place_is_named() {
        let places = Places { home: Some("/nonexistent/.kube/config".into()), ..Places::default() };
        let text = error(&places).await;
        for part in [
            "KUBECONFIG is not set",
            "/nonexistent/.kube/config is not there",
            "KUBERNETES_SERVICE_HOST",
            "set KUBECONFIG to",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_named_but_missing_is_told_and_not_passed_over() {
        let places =
            Places { kubeconfig: Some("/nonexistent/config".into()), in_cluster: true, ..Places::default() };
        let text = error(&places).await;
        assert!(
            text.starts_with("the kubeconfig /nonexistent/config (from KUBECONFIG) cannot be used: "),
            "{text}"
        );
    }

    #[tokio::test]
    async fn an_unknown_context_is_told() {
        let (_folder, mut places) = kubeconfig("{token: t}");
        places.context = Some("prod".to_owned());
        assert!(error(&places).await.contains("prod"));
    }

    /// A server that refuses everything and notes with which token it was asked.
    async fn doorkeeper() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (told, tokens) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"\r\n\r\n") {
                    bytes.push(stream.read_u8().await.unwrap());
                }
                let request = String::from_utf8(bytes).unwrap();
                let token =
                    request.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("");
                told.send(token.to_owned()).unwrap();
                let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (address, tokens)
    }

    /// The tokens of three requests in a row; something happens after each.
    async fn tokens(user: &str, then: impl Fn()) -> Vec<String> {
        let (server, mut tokens) = doorkeeper().await;
        let (folder, places) = kubeconfig(user);
        let file = folder.path().join("config");
        let text = std::fs::read_to_string(&file).unwrap().replace("http://127.0.0.1:1", &server);
        std::fs::write(&file, text).unwrap();
        let client = infer_from(&places, &Options::default()).await.unwrap();
        assert_eq!(client.default_namespace(), "team-a");
        let mut seen = Vec::new();
        for _ in 0..3 {
            client.apiserver_version().await.unwrap_err();
            seen.push(tokens.recv().await.unwrap());
            then();
        }
        seen
    }

    #[tokio::test]
    async fn the_token_of_a_kubeconfig_is_sent() {
        assert_eq!(tokens("{token: secret}", || ()).await, ["Bearer secret"; 3]);
    }

    #[tokio::test]
    async fn the_token_of_a_file_is_read_again_when_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "t1\n").unwrap();
        let rotate = || {
            let next =
                std::fs::read_to_string(&file).unwrap().trim().replace('t', "").parse::<u32>().unwrap() + 1;
            std::fs::write(&file, format!("t{next}\n")).unwrap();
        };
        let user = format!("{{token: old, tokenFile: {}}}", file.display());
        assert_eq!(tokens(&user, rotate).await, ["Bearer t1", "Bearer t2", "Bearer t3"]);
        std::fs::remove_file(&file).unwrap();
        let (_folder, places) = kubeconfig(&user);
        let text = error(&places).await;
        assert!(text.starts_with(&format!("the token in {} cannot be used: ", file.display())), "{text}");
    }

    #[tokio::test]
    async fn an_exec_plugin_is_asked_again_when_its_token_expires() {
        let folder = tempfile::tempdir().unwrap();
        let (asked, script) = (folder.path().join("asked"), folder.path().join("plugin.sh"));
        // Each token is one letter longer than the one before.
        let text = format!(
            r#"printf x >> '{0}'
printf '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"%s"%s}}}}' "$(cat '{0}')" "$1""#,
            asked.display()
        );
        std::fs::write(&script, text).unwrap();
        let user = |more: &str| {
            format!(
                "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{}', '{more}'], interactiveMode: Never}}}}",
                script.display()
            )
        };
        // One that says nothing of an end is asked once.
        let seen = tokens(&user(""), || ()).await;
        assert!(seen[0].starts_with("Bearer x") && seen.iter().all(|token| *token == seen[0]), "{seen:?}");
        let expired = r#","expirationTimestamp":"2020-01-01T00:00:00Z""#;
        let seen = tokens(&user(expired), || ()).await;
        assert!(seen.windows(2).all(|two| two[1] == format!("{}x", two[0])), "{seen:?}");
    }

    #[tokio::test]
    async fn an_exec_plugin_that_is_missing_is_told_with_where_it_came_from() {
        let (_folder, places) = kubeconfig(
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, interactiveMode: Never}}",
        );
        let text = error(&places).await;
        assert!(text.contains("exec plugins") && text.contains("from KUBECONFIG"), "{text}");
    }

    #[tokio::test]
    async fn a_pod_without_its_account_is_told() {
        let places = Places { in_cluster: true, ..Places::default() };
        let text = error(&places).await;
        assert!(text.contains("automountServiceAccountToken"), "{text}");
    }
}
