//! The doctor over HTTP: audits, repairs and translates a pasted request. It uses the same code as
//! the commands `audit`, `repair` and `translate`.

use std::sync::Arc;

use bytes::Bytes;
use throughline_codec::{
    CODECS, Codec, DecodeContext, Document, RepairLevel, Transcript, applied_fixes_json, audit,
    audit_json, codec, detect, fates_json, repair,
};
use throughline_core::{Provider, Request, Target, Wire};
use throughline_json::{Json, Name};

use crate::api::{ApiError, ApiRequest, ApiResult, json_response};
use crate::gateway::limited_tree;
use crate::object::{join_objects, object};
use crate::response::GatewayResponse;

/// Lists the wires and providers that a pasted request can use.
pub(crate) fn list_targets(request: &ApiRequest<'_>) -> GatewayResponse {
    let wires: Vec<Name> = CODECS.iter().map(|codec| codec.wire().as_str().into()).collect();
    let row = |row: &Arc<Provider>| object! { "name": row.name, "wire": row.wire.as_str() };
    let providers: Vec<Json> =
        request.gateway.catalog.current().providers().iter().map(row).collect();
    json_response(&object! { "wires": wires, "providers": providers })
}

/// A pasted request with its target and the codec for its wire.
struct DoctorInput {
    codec: &'static dyn Codec,
    request: Request,
    target: Target,
}

/// Audits and repairs a request, and translates it if another provider is named.
pub(crate) async fn diagnose(request: &ApiRequest<'_>) -> ApiResult {
    let length = request.body.bytes().len();
    let heavy = &request.gateway.operations.heavy;
    heavy.run(request.caller, length, async { diagnosis(request) }).await?
}

fn diagnosis(request: &ApiRequest<'_>) -> ApiResult {
    let patient = parse_input(request)?;
    let transcript = Transcript::new(patient.codec, &patient.request);
    let audited = audit(&transcript, &patient.target)?;
    let repaired = repair(&transcript, &patient.target, RepairLevel::Refused)?;
    Ok(json_response(&object! {
        "wire": patient.codec.wire().as_str(),
        "provider": patient.target.origin.provider,
        "model": patient.target.model(),
        "audit": audit_json(&audited),
        "repair": object! {
            "verdict": repaired.audit.verdict().as_str(),
            "repaired": applied_fixes_json(&repaired.fixes),
            "left": audit_json(&repaired.audit),
            "request": text(&repaired.request.body),
        },
        "translation"? translation(request, &patient)?,
    }))
}

fn parse_input(request: &ApiRequest<'_>) -> ApiResult<DoctorInput> {
    let (body, catalog) = (request.body.root(), request.gateway.catalog.current());
    let wrong = |message: String| ApiError::new(422, message);
    let pasted = body.present("request");
    let pasted = pasted.ok_or_else(|| wrong("request: paste one".to_owned()))?;
    let bytes = match pasted.text() {
        Some(text) => Bytes::from(text.into_owned()),
        None => pasted.json().bytes().clone(),
    };
    // The limits on the outer body do not cover the pasted request, so the request is measured
    // here.
    let gateway = request.gateway;
    limited_tree(&bytes, gateway.depth_limit, &gateway.operations.limits.sizes)?;
    let wire = match body.name_of("wire").filter(|wire| !wire.is_empty()) {
        Some(wire) => Wire::new(wire.to_string()),
        None => detect_wire(&bytes)?,
    };
    let codec = codec(&wire).ok_or_else(|| wrong(format!("wire: no codec for `{wire}`")))?;
    let mut request = Request { path: Name::from(""), headers: Vec::new(), body: bytes };
    let model = body.name_of("model").filter(|model| !model.is_empty());
    let model = model.or_else(|| codec.model_of(&request)).ok_or_else(|| {
        wrong("the request does not contain its model; specify it in `model`".to_owned())
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

fn detect_wire(bytes: &Bytes) -> ApiResult<Wire> {
    let wrong = |message: &str| ApiError::new(422, message);
    let guess = detect(bytes).ok_or_else(|| {
        wrong("this is not a known provider's request; check that it is complete and valid JSON")
    })?;
    if guess.document != Document::Request {
        return Err(wrong(
            "this is a provider's response, not a request; paste the request that is sent to the \
             provider",
        ));
    }
    Ok(guess.wire)
}

/// Translates the request for the provider that the body names, if any.
fn translation(request: &ApiRequest<'_>, patient: &DoctorInput) -> ApiResult<Option<Json>> {
    let (body, catalog) = (request.body.root(), request.gateway.catalog.current());
    let Some(name) = body.name_of("to_provider").filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let unknown = || ApiError::new(422, format!("to_provider: there is no provider {name}"));
    let row = catalog.provider(&name).ok_or_else(unknown)?;
    let to = codec(&row.wire).ok_or_else(unknown)?;
    let model = body.name_of("to_model").filter(|model| !model.is_empty());
    let model = model.unwrap_or_else(|| Name::from(patient.target.model()));
    let source = DecodeContext::of(patient.target.clone());
    let mut call = patient.codec.decode_request(&patient.request, &source)?;
    call.target = catalog.target(&row, &model, "default");
    let encoded = to.encode(&call)?;
    let request = object! { "request": text(&encoded.request.body) };
    Ok(Some(join_objects(&fates_json(&call, &encoded), &request)))
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
