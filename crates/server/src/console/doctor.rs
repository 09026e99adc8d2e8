//! The doctor over HTTP: audits, repairs and translates a pasted request. It uses the same code as
//! the commands `audit`, `repair` and `translate`.

use bytes::Bytes;
use throughline_codec::{
    CODECS, Codec, CodecError, DecodeContext as AskedOf, Document, RepairLevel, Transcript,
    applied_fixes_json, audit, audit_json, codec, detect, fates_json, repair,
};
use throughline_core::{Request, Target, Wire};
use throughline_json::{self as json, Json, Name};

use crate::api::{ApiError, ApiRequest, ApiResult};
use crate::gateway::limited_tree;
use crate::response::GatewayResponse;

/// Lists the wires and the providers that a request can be for.
pub(crate) fn list_targets(asked: &ApiRequest<'_>) -> GatewayResponse {
    let told = json::object(|o| {
        o.array("wires", |list| {
            for codec in CODECS {
                list.string(codec.wire().as_str());
            }
        });
        o.array("providers", |list| {
            for row in asked.gateway.catalog.providers() {
                list.object(|o| {
                    o.string("name", &row.name).string("wire", row.wire.as_str());
                });
            }
        });
    });
    GatewayResponse::json(200, &told)
}

/// A request and its target.
struct DoctorInput {
    codec: &'static dyn Codec,
    request: Request,
    target: Target,
}

/// Audits and repairs a request, and translates it if another provider is named.
pub(crate) async fn diagnose(asked: &ApiRequest<'_>) -> ApiResult {
    let length = asked.body.bytes().len();
    let heavy = &asked.gateway.operations.heavy;
    heavy.run(asked.caller, length, async { diagnosis(asked) }).await?
}

fn diagnosis(asked: &ApiRequest<'_>) -> ApiResult {
    let patient = parse_input(asked)?;
    let transcript = Transcript::new(patient.codec, &patient.request);
    let audited = audit(&transcript, &patient.target).map_err(|error| codec_error(&error))?;
    let repaired = repair(&transcript, &patient.target, RepairLevel::Refused);
    let repaired = repaired.map_err(|error| codec_error(&error))?;
    let translated = translation(asked, &patient)?;
    let told = json::object(|o| {
        o.string("wire", patient.codec.wire().as_str());
        o.string("provider", &patient.target.origin.provider);
        o.string("model", patient.target.model());
        o.raw("audit", &audit_json(&audited));
        o.object("repair", |o| {
            o.string("verdict", repaired.audit.verdict().as_str());
            o.raw("repaired", &applied_fixes_json(&repaired.fixes));
            o.raw("left", &audit_json(&repaired.audit));
            o.string("request", text(&repaired.request.body));
        });
        if let Some(translated) = &translated {
            o.raw("translation", translated);
        }
    });
    Ok(GatewayResponse::json(200, &told))
}

fn parse_input(asked: &ApiRequest<'_>) -> Result<DoctorInput, ApiError> {
    let (body, catalog) = (asked.body.root(), &asked.gateway.catalog);
    let wrong = |message: String| ApiError::new(422, message);
    let pasted = body.present("request");
    let pasted = pasted.ok_or_else(|| wrong("request: paste one".to_owned()))?;
    let bytes = match pasted.text() {
        Some(text) => Bytes::from(text.into_owned()),
        None => pasted.json().bytes().clone(),
    };
    // The limits on the outer body do not cover the pasted request, so the request is measured
    // here.
    let gateway = asked.gateway;
    limited_tree(&bytes, gateway.depth_limit, &gateway.operations.limits.sizes)?;
    let wire = match body.name_of("wire").filter(|wire| !wire.is_empty()) {
        Some(wire) => Wire::new(wire.to_string()),
        None => detect_wire(&bytes)?,
    };
    let codec = codec(&wire).ok_or_else(|| wrong(format!("wire: no codec for `{wire}`")))?;
    let mut request = Request { path: Name::from(""), headers: Vec::new(), body: bytes };
    let model = body.name_of("model").filter(|model| !model.is_empty());
    let model = model.or_else(|| codec.model_of(&request)).ok_or_else(|| {
        wrong("the request does not name its model: specify one in `model`".to_owned())
    })?;
    let row = match body.name_of("provider").filter(|name| !name.is_empty()) {
        Some(name) => catalog.provider_on_wire(&name, &wire),
        None => catalog.provider_for_model(&wire, &model),
    };
    let row = row.ok_or_else(|| wrong(format!("provider: this provider does not use {wire}")))?;
    let target = catalog.target(&row, &model, "default");
    request.path = Name::from(codec.path(&target, false));
    Ok(DoctorInput { codec, request, target })
}

fn detect_wire(bytes: &Bytes) -> Result<Wire, ApiError> {
    let wrong = |message: &str| ApiError::new(422, message);
    let guess = detect(bytes).ok_or_else(|| {
        wrong("this is not a request of a known provider: check that it is complete and JSON")
    })?;
    if guess.document != Document::Request {
        return Err(wrong("this is an answer, not a request: paste what is sent to the provider"));
    }
    Ok(guess.wire)
}

/// Translates the request for another provider, if one is named.
fn translation(asked: &ApiRequest<'_>, patient: &DoctorInput) -> Result<Option<Json>, ApiError> {
    let (body, catalog) = (asked.body.root(), &asked.gateway.catalog);
    let Some(name) = body.name_of("to_provider").filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let unknown = || ApiError::new(422, format!("to_provider: there is no {name}"));
    let row = catalog.provider(&name).ok_or_else(unknown)?;
    let to = codec(&row.wire).ok_or_else(unknown)?;
    let model = body.name_of("to_model").filter(|model| !model.is_empty());
    let model = model.unwrap_or_else(|| Name::from(patient.target.model()));
    let source = AskedOf::of(patient.target.clone());
    let call = patient.codec.decode_request(&patient.request, &source);
    let mut call = call.map_err(|error| codec_error(&error))?;
    call.target = catalog.target(&row, &model, "default");
    let encoded = to.encode(&call).map_err(|error| codec_error(&error))?;
    let fates = fates_json(&call, &encoded);
    Ok(Some(json::object(|o| {
        for (name, value) in fates.tree().root().members() {
            o.node(&name.text().unwrap_or_default(), value);
        }
        o.string("request", text(&encoded.request.body));
    })))
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn codec_error(error: &CodecError) -> ApiError {
    ApiError::new(422, error.to_string())
}
