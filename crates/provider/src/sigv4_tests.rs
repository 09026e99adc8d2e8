//! Tests against AWS's published test suite for Signature Version 4, with its credentials and
//! signatures.

use jiff::Timestamp;
use throughline_core::Credential;

use super::{AwsKeys, SignedParts, region_from_host, sign};

const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

fn keys(session_token: Option<&str>) -> AwsKeys {
    AwsKeys {
        id: "AKIDEXAMPLE".into(),
        secret: Credential::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        session_token: session_token.map(Credential::new),
        region: None,
    }
}

fn request<'a>(method: &'a str, path: &'a str, query: &'a str) -> SignedParts<'a> {
    let headers = vec![("host", "example.amazonaws.com")];
    SignedParts { method, path, query, headers, body: b"" }
}

/// Signs a request; returns the signed header names and the signature.
fn signed(request: &SignedParts<'_>, session_token: Option<&str>) -> (String, String) {
    let at: Timestamp = "2015-08-30T12:36:00Z".parse().unwrap();
    let added = sign(&keys(session_token), "us-east-1", "service", at, request);
    assert_eq!(added[0], ("x-amz-date", "20150830T123600Z".to_owned()));
    let (_, authorization) = added.last().unwrap();
    let rest = authorization
        .strip_prefix("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=")
        .unwrap();
    let (headers, signature) = rest.split_once(", Signature=").unwrap();
    (headers.to_owned(), signature.to_owned())
}

#[test]
fn published_requests_get_the_published_signatures() {
    for (name, request, signature) in [
        (
            "get-vanilla",
            request("GET", "/", ""),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            "post-vanilla",
            request("POST", "/", ""),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
        (
            "get-vanilla-query-order-key-case",
            request("GET", "/", "Param2=value2&Param1=value1"),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "get-utf8",
            request("GET", "/ሴ", ""),
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        ),
        (
            "get-space",
            request("GET", "/example space/", ""),
            "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
        ),
    ] {
        let expected = ("host;x-amz-date".to_owned(), signature.to_owned());
        assert_eq!(signed(&request, None), expected, "{name}");
    }
}

#[test]
fn headers_and_body_are_signed_as_published() {
    let mut form = request("POST", "/", "");
    form.headers.push(("content-type", "application/x-www-form-urlencoded"));
    form.body = b"Param1=value1";
    let signature = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
    let expected = ("content-type;host;x-amz-date".to_owned(), signature.to_owned());
    assert_eq!(signed(&form, None), expected, "post-x-www-form-urlencoded");

    let mut spaced = request("GET", "/", "");
    spaced.headers.push(("my-header1", " value1"));
    spaced.headers.push(("my-header2", "\"a   b   c\""));
    let signature = "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736";
    let expected = ("host;my-header1;my-header2;x-amz-date".to_owned(), signature.to_owned());
    assert_eq!(signed(&spaced, None), expected, "get-header-value-trim");
}

#[test]
fn session_token_is_sent_and_signed_as_published() {
    let signature = "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead";
    let expected = ("host;x-amz-date;x-amz-security-token".to_owned(), signature.to_owned());
    assert_eq!(signed(&request("POST", "/", ""), Some(TOKEN)), expected, "post-sts-header-before");
}

#[test]
fn the_region_is_read_from_the_host() {
    for (host, region) in [
        ("bedrock-runtime.us-east-1.amazonaws.com", Some("us-east-1")),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
        ("vpce-0a1b-2.bedrock-runtime.eu-west-3.vpce.amazonaws.com", Some("eu-west-3")),
        ("bedrock-runtime.ap-southeast-2.api.aws", Some("ap-southeast-2")),
        ("localhost", None),
        ("127.0.0.1", None),
    ] {
        assert_eq!(region_from_host(host), region, "{host}");
    }
}
