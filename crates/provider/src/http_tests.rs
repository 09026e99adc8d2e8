//! Tests of HTTP/2 over TLS with a self-signed certificate, and of host names that resolve to
//! blocked addresses.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use throughline_codec::Catalog;
use throughline_core::{Upstream, UpstreamError, UpstreamRequest};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::{Clock, EndpointConn, Http};
use crate::address::FilteredResolver;
use crate::endpoint::{CredentialSource, Endpoint};
use crate::{retry, tls};

struct Server {
    address: String,
    certificate: CertificateDer<'static>,
    /// Receives the connection number and path of each request, and again if the client cancels its
    /// stream.
    events: mpsc::UnboundedReceiver<(usize, String)>,
}

/// Starts a server that begins a response to each request and never finishes it.
async fn start() -> Server {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = cert.der().clone();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let (sender, events) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for connection in 0.. {
            let (socket, _) = listener.accept().await.unwrap();
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let Ok(socket) = acceptor.accept(socket).await else { return };
                let mut streams = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((request, mut respond))) = streams.accept().await {
                    let path = request.uri().path().to_owned();
                    sender.send((connection, path.clone())).unwrap();
                    let sender = sender.clone();
                    tokio::spawn(async move {
                        let head = http::Response::new(());
                        let mut body = respond.send_response(head, false).unwrap();
                        body.send_data(Bytes::from(path.clone()), false).unwrap();
                        poll_fn(|context| body.poll_reset(context)).await.unwrap();
                        sender.send((connection, format!("{path} ended"))).unwrap();
                    });
                }
            });
        }
    });
    Server { address, certificate, events }
}

fn clock() -> Clock {
    Arc::new(|| "2026-11-15T12:00:00Z".parse().unwrap())
}

fn endpoint(address: &str) -> Endpoint {
    let row = Catalog::builtin().provider("ollama").unwrap();
    let mut endpoint = Endpoint::new("here", row, address, CredentialSource::Open).unwrap();
    endpoint.options.retry = retry::RetryPolicy { retries: 0, ..endpoint.options.retry };
    endpoint
}

fn outgoing(path: &str) -> UpstreamRequest {
    UpstreamRequest {
        endpoint: "here".into(),
        model: None,
        method: "POST".into(),
        path: path.into(),
        headers: Vec::new(),
        body: Bytes::from_static(b"{}"),
        credential: None,
    }
}

#[tokio::test]
async fn http2_requests_share_a_connection_and_end_independently() {
    let mut server = start().await;
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let connection = EndpointConn::new(
        endpoint(&server.address),
        tls::config_with_roots(roots).unwrap(),
        FilteredResolver::system(),
    );
    let http = Http::from_connections([Ok(connection)], clock()).unwrap();

    let mut one = http.send(outgoing("/one")).await.unwrap();
    let mut two = http.send(outgoing("/two")).await.unwrap();
    assert_eq!(server.events.recv().await, Some((0, "/one".to_owned())));
    assert_eq!(server.events.recv().await, Some((0, "/two".to_owned())), "on the same connection");
    assert_eq!(one.body.next().await.unwrap().unwrap(), "/one");
    drop(one);
    assert_eq!(server.events.recv().await, Some((0, "/one ended".to_owned())));
    assert_eq!(two.body.next().await.unwrap().unwrap(), "/two", "the other stream continues");
}

#[tokio::test]
async fn unknown_certificate_is_rejected() {
    let server = start().await;
    let http = Http::new([endpoint(&server.address)], clock()).unwrap();
    let error = http.send(outgoing("/one")).await.unwrap_err();
    let UpstreamError::Unreachable { cause, .. } = &error else { panic!("{error}") };
    assert!(cause.contains("certificate"), "{error}");
}

#[tokio::test]
async fn name_resolving_to_metadata_service_is_blocked() {
    // Simulates a name server that an attacker controls.
    let names = FilteredResolver::with_lookup(|_| {
        let addresses = vec!["169.254.169.254:0".parse().unwrap()];
        Box::pin(async move { Ok(addresses) })
    });
    let connection =
        EndpointConn::new(endpoint("http://innocent.example"), tls::config().unwrap(), names);
    let error = Http::from_connections([Ok(connection)], clock())
        .unwrap()
        .send(outgoing("/one"))
        .await
        .unwrap_err();
    let address = "169.254.169.254 (innocent.example)".into();
    assert_eq!(error, UpstreamError::Refused { endpoint: "here".into(), address });
}

#[tokio::test]
async fn duplicate_endpoint_names_are_rejected() {
    let twice = [endpoint("http://localhost:1"), endpoint("http://localhost:2")];
    let error = Http::new(twice, clock()).unwrap_err();
    assert_eq!(error.to_string(), "cannot use endpoint here: another endpoint has the same name");
}
