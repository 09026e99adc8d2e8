//! The doctor over HTTP: a request that somebody pastes, its audit, its repair, and its translation. The same code as the
//! commands `audit`, `repair` and `translate` use.

use bytes::Bytes;
use throughline_codec::{
    Asked as AskedOf, CODECS, Codec, CodecError, Document, Reach, Transcript, audit, audit_json,
    codec, fates_json, guess, mended_json, repair,
};
use throughline_core::{Json, Name, Request, Target, Wire, json};

use crate::gateway::{Answered, limited_tree};
use crate::letta::{Asked, Denied, Told};

/// Whom a request can be for.
pub(crate) fn rows(asked: &Asked<'_>) -> Answered {
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
    Answered::json(200, &told)
}

/// A request, and whom it goes to.
struct Patient {
    codec: &'static dyn Codec,
    request: Request,
    target: Target,
}

/// What a provider would say to a request, what it takes instead, and how it is said to another one.
pub(crate) async fn look(asked: &Asked<'_>) -> Told {
    let length = asked.body.bytes().len();
    let heavy = &asked.gateway.operations.heavy;
    heavy.run(asked.caller, length, async { examine(asked) }).await?
}

fn examine(asked: &Asked<'_>) -> Told {
    let patient = patient(asked)?;
    let transcript = Transcript::of(patient.codec, &patient.request);
    let audited = audit(&transcript, &patient.target).map_err(|error| bad(&error))?;
    let repaired = repair(&transcript, &patient.target, Reach::Refused);
    let repaired = repaired.map_err(|error| bad(&error))?;
    let translated = translation(asked, &patient)?;
    let told = json::object(|o| {
        o.string("wire", patient.codec.wire().as_str());
        o.string("provider", &patient.target.origin.provider);
        o.string("model", patient.target.model());
        o.raw("audit", &audit_json(&audited));
        o.object("repair", |o| {
            o.string("verdict", repaired.audit.verdict().as_str());
            o.raw("mended", &mended_json(&repaired.mended));
            o.raw("left", &audit_json(&repaired.audit));
            o.string("request", text(&repaired.request.body));
        });
        if let Some(translated) = &translated {
            o.raw("translation", translated);
        }
    });
    Ok(Answered::json(200, &told))
}

fn patient(asked: &Asked<'_>) -> Result<Patient, Denied> {
    let (body, catalog) = (asked.body.root(), &asked.gateway.catalog);
    let wrong = |message: String| Denied::new(422, message);
    let pasted = body.present("request");
    let pasted = pasted.ok_or_else(|| wrong("request: paste one".to_owned()))?;
    let bytes = match pasted.text() {
        Some(text) => Bytes::from(text.into_owned()),
        None => pasted.json().bytes().clone(),
    };
    // What is pasted as text was not measured with the body around it, nor the request inside that body.
    let gateway = asked.gateway;
    limited_tree(&bytes, gateway.depth_limit, &gateway.operations.limits.sizes)?;
    let wire = match body.name_of("wire").filter(|wire| !wire.is_empty()) {
        Some(wire) => Wire::new(wire.to_string()),
        None => guessed(&bytes)?,
    };
    let codec = codec(&wire).ok_or_else(|| wrong(format!("wire: nobody here speaks {wire}")))?;
    let mut request = Request { path: Name::from(""), headers: Vec::new(), body: bytes };
    let model = body.name_of("model").filter(|model| !model.is_empty());
    let model = model.or_else(|| codec.model_of(&request)).ok_or_else(|| {
        wrong("the request does not name its model: say which one is asked".to_owned())
    })?;
    let row = match body.name_of("provider").filter(|name| !name.is_empty()) {
        Some(name) => catalog.provider_on(&name, &wire),
        None => catalog.provider_of(&wire, &model),
    };
    let row = row.ok_or_else(|| wrong(format!("provider: that one does not speak {wire}")))?;
    let target = catalog.target(&row, &model, "default");
    request.path = Name::from(codec.path(&target, false));
    Ok(Patient { codec, request, target })
}

fn guessed(bytes: &Bytes) -> Result<Wire, Denied> {
    let wrong = |message: &str| Denied::new(422, message);
    let guess = guess(bytes).ok_or_else(|| {
        wrong("this is no request of a provider that is known here: is it whole, and is it JSON?")
    })?;
    if guess.document != Document::Request {
        return Err(wrong("this is an answer, not a request: paste what is sent to the provider"));
    }
    Ok(guess.wire)
}

/// The request in another provider's words, where one is named.
fn translation(asked: &Asked<'_>, patient: &Patient) -> Result<Option<Json>, Denied> {
    let (body, catalog) = (asked.body.root(), &asked.gateway.catalog);
    let Some(name) = body.name_of("to_provider").filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let unknown = || Denied::new(422, format!("to_provider: there is no {name}"));
    let row = catalog.provider(&name).ok_or_else(unknown)?;
    let to = codec(&row.wire).ok_or_else(unknown)?;
    let model = body.name_of("to_model").filter(|model| !model.is_empty());
    let model = model.unwrap_or_else(|| Name::from(patient.target.model()));
    let source = AskedOf::of(patient.target.clone());
    let call = patient.codec.decode_request(&patient.request, &source);
    let mut call = call.map_err(|error| bad(&error))?;
    call.target = catalog.target(&row, &model, "default");
    let encoded = to.encode(&call).map_err(|error| bad(&error))?;
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

fn bad(error: &CodecError) -> Denied {
    Denied::new(422, error.to_string())
}
