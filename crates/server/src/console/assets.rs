//! Serves the page that `scripts/ui` built from `ui/`. The page is embedded in the binary and loads
//! nothing from other servers.

use axum::http::HeaderMap;
use axum::http::header::IF_NONE_MATCH;
use bytes::Bytes;

use crate::response::GatewayResponse;

const FILES: &[(&str, &[u8])] = include!("../../assets/list.rs");

/// Content security policy that allows only files of this server, no inline code, and no embedding
/// in other pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the paths of all files.
pub(crate) fn paths() -> impl Iterator<Item = String> {
    std::iter::once("/".to_owned()).chain(FILES.iter().map(|(name, _)| format!("/{name}")))
}

/// Serves the embedded file at a path; `None` if no file has this path.
pub(crate) fn serve(method: &str, path: &str, headers: &HeaderMap) -> Option<GatewayResponse> {
    if !matches!(method, "GET" | "HEAD") {
        return None;
    }
    let name = if path == "/" { "index.html" } else { path.strip_prefix('/')? };
    let (name, bytes) = FILES.iter().find(|(known, _)| *known == name)?;
    let tag = format!("\"{}\"", blake3::hash(bytes).to_hex().get(..32).unwrap_or_default());
    let is_known =
        headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    // A name with a digest always has the same bytes. The page itself is requested each time.
    let lasting = if name.starts_with("assets/") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let body = if is_known || method == "HEAD" { Bytes::new() } else { Bytes::from_static(bytes) };
    let response = GatewayResponse::text(content_type(name), body)
        .with_header("etag", tag)
        .with_header("cache-control", lasting)
        .with_header("content-security-policy", POLICY)
        .with_header("x-content-type-options", "nosniff")
        .with_header("referrer-policy", "no-referrer");
    Some(GatewayResponse { status: if is_known { 304 } else { 200 }, ..response })
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::http::header::{CONTENT_SECURITY_POLICY, ETAG};
    use axum::response::Response;

    use super::*;

    fn serve(method: &str, path: &str, headers: &HeaderMap) -> Option<Response> {
        super::serve(method, path, headers).map(GatewayResponse::into_response)
    }

    #[test]
    fn page_is_served_and_loads_nothing_external() {
        let page = serve("GET", "/", &HeaderMap::new());
        assert!(page.is_some_and(|page| page.headers().contains_key(CONTENT_SECURITY_POLICY)));
        assert!(serve("POST", "/", &HeaderMap::new()).is_none());
        assert!(serve("GET", "/assets/../Cargo.toml", &HeaderMap::new()).is_none());
        for (name, bytes) in FILES {
            let text = String::from_utf8_lossy(bytes);
            assert!(!text.contains("src=\"http") && !text.contains("@import"), "{name}");
        }
    }

    #[test]
    fn matching_etag_returns_not_modified() {
        let first = serve("GET", "/", &HeaderMap::new());
        let tag = first.and_then(|page| page.headers().get(ETAG).cloned());
        let headers: HeaderMap = tag.map(|tag| (IF_NONE_MATCH, tag)).into_iter().collect();
        let again = serve("GET", "/", &headers).map(|page| page.status());
        assert_eq!(again, Some(StatusCode::NOT_MODIFIED));
    }
}
