//! The bare reverse proxy, which forwards requests without parsing or storing them.

use std::net::SocketAddr;

use anyhow::Context as _;
use hyper::Uri;
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::process;

pub(crate) async fn serve(to: &str, listen: SocketAddr) -> anyhow::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    let to: Uri = to.parse().with_context(|| format!("{to} is not a valid URL"))?;
    process::listen_at(listen, move |mut request| {
        let (client, to) = (client.clone(), to.clone());
        async move {
            let mut parts = to.into_parts();
            parts.path_and_query = request.uri().path_and_query().cloned();
            *request.uri_mut() = Uri::from_parts(parts)?;
            request.headers_mut().remove(HOST);
            Ok(client.request(request).await?)
        }
    })
    .await
}
