//! A request is made ready to be sent: read, completed with what its caller had lost, said in the provider's words, looked at
//! and mended.

use std::collections::HashMap;
use std::time::Duration;

use throughline_codec::{
    Asked, Codec, CodecError, IssuedSeals, Reach, Transcript, Verdict, audit, recount, repair,
};
use throughline_core::{
    Body, Call, Did, Encoded, Item, ItemId, Name, Request, Target, Tenant, Tree, Warning, Why, Wire,
};
use tokio::time::timeout;

use crate::dialect::{self, Names};
use crate::exchange::{Exchange, Problem, speaker};
use crate::gateway::{Reached, ReplayMode};
use crate::operations::too_slow;
use crate::prefix;
use crate::references::References;
use crate::replay::{CapturedSeals, Claims, Conversation, Finding, Restored};
use crate::stored::Stored;
use crate::story::{self, Looked, Story};
use crate::telling::unreadable;

/// How long the store may take to give what a client had lost.
const LONGEST_RESTORE: Duration = Duration::from_secs(10);

/// A request that was read.
pub(crate) struct Read {
    pub(crate) call: Call,
    /// Whom it asks.
    pub(crate) target: Target,
    /// Whose conversation it is.
    pub(crate) tenant: Tenant,
}

/// A request with the reasoning that its caller had lost.
pub(crate) struct Found {
    pub(crate) encoded: Encoded,
    /// The conversation that it belongs to, unless the mode is off.
    pub(crate) replayed: Option<Replayed>,
    /// Whether content other than reasoning of another owner is left out.
    pub(crate) loses_content: bool,
}

/// What was found of the conversation that a request belongs to.
pub(crate) struct Replayed {
    pub(crate) conversation: Conversation,
    pub(crate) findings: Vec<Finding>,
    /// The seals that are known to be as their providers issued them.
    pub(crate) issued: CapturedSeals,
}

/// A request that is ready to be sent.
pub(crate) struct Ready {
    pub(crate) encoded: Encoded,
    /// What a provider would say to it.
    pub(crate) verdict: Verdict,
    pub(crate) conversation: Option<Conversation>,
    /// Whose conversation it is.
    pub(crate) tenant: Tenant,
    pub(crate) target: Target,
    pub(crate) stream: bool,
    /// Whether nothing was restored, since the store could not be read.
    pub(crate) is_unrestored: bool,
}

impl Exchange<'_> {
    /// The model that a request asks for, and the end-user that it is for.
    pub(crate) fn named(
        &self,
        request: &Request,
        body: Option<&Tree>,
    ) -> Result<(Name, Option<Name>), Problem> {
        let Names { model, end_user } = dialect::names(&self.wire, &request.path, body);
        let model = model.ok_or_else(|| unnamed(request))?;
        Ok((model, self.caller.end_user.clone().or(end_user)))
    }

    /// Whom the caller reaches by that name, in the order in which they are tried.
    pub(crate) fn reach(&self, asked: &str) -> Result<Vec<Reached>, Problem> {
        if !self.caller.admission.allows(asked) {
            return Err(Problem::new(403, format!("this key may not ask for {asked}")));
        }
        let all =
            self.gateway.directory.reach(asked).map_err(|message| Problem::new(404, message))?;
        // Gemini's paths hold the name of the model: it must not lead to another path.
        let is_path = |reached: &Reached| {
            reached.provider.wire == Wire::GEMINI
                && (reached.model.contains(['\\', '?', '#', '%']) || reached.model.contains(".."))
        };
        if all.iter().any(is_path) {
            return Err(Problem::new(404, format!("there is no model `{asked}`")));
        }
        Ok(all)
    }

    /// Makes a request ready for whom it reaches. `body` is what came, parsed; the request may differ from that.
    pub(crate) async fn prepare(
        &self,
        request: Request,
        body: Option<&Tree>,
        resumed: Option<(&Stored, Request)>,
        reached: &Reached,
        end_user: Option<&str>,
        story: &mut Story,
    ) -> Result<Ready, Problem> {
        let whole = resumed.as_ref().map_or(&request, |(_, whole)| whole);
        let references = Box::pin(self.resolve_references(whole, body, reached, end_user)).await?;
        if let Some(References { whole, .. }) = &references {
            // Later requests go on from the items, even if their response is deleted.
            let (asked, _) = self.named(&request, self.body.as_ref())?;
            let whole = Request { body: whole.clone(), ..request.clone() };
            let whole = dialect::renamed(&self.wire, whole, &reached.model, &asked);
            story.texts.whole = whole.body;
        }
        let whole = references.as_ref().map_or(whole, |references| &references.expanded);
        let Read { call, target, tenant } = self.read(whole, body, reached)?;
        story.tenant = tenant.clone();
        let to = speaker(&target.origin.wire)?;
        let stream = call.stream;
        let operations = &self.gateway.operations;
        let needs_store = resumed.is_some() || Claims::are_in(&whole.body);
        let may_pass = !needs_store && operations.passes_without_store();
        let is_off = self.gateway.mode == ReplayMode::Off;
        let found = if may_pass && !is_off && operations.is_read_failing() {
            // The request does not wait for a store that may hang.
            Err(unreadable(&too_slow()))
        } else {
            self.restored(to, call, end_user, &tenant).await
        };
        let is_unrestored = found.as_ref().is_err_and(|problem| problem.is_of_store && may_pass);
        let mut found = if is_unrestored {
            self.unrestored(to, whole, body, reached, end_user)?
        } else {
            found?
        };
        if prefix::has_changed(&found.encoded) {
            let again = self.bound(to, found, (whole, end_user), reached, &tenant);
            let (again, changed) = Box::pin(again).await?;
            found = again;
            story.prefix_changed = changed;
        }
        let Found { mut encoded, replayed: mut restored, mut loses_content } = found;
        if resumed.as_ref().is_some_and(|(stored, _)| stored.is_at(&target)) {
            // The target has the conversation itself, so only what is new is sent.
            let new = Box::pin(self.resolve_references(&request, body, reached, end_user)).await?;
            let new = new.as_ref().map_or(&request, |references| &references.for_target);
            let Read { mut call, .. } = self.read(new, body, reached)?;
            Claims::remove(&mut call, Why::Foreign);
            encoded = to.encode(&call).map_err(|error| Problem::of_codec(&error))?;
        } else if let Some(references) = references.filter(|found| found.has_kept_items) {
            // The target resolves the references to items that it keeps.
            let Read { call, .. } = self.read(&references.for_target, body, reached)?;
            let kept = Box::pin(self.restored(to, call, end_user, &tenant)).await?;
            encoded = kept.encoded;
            loses_content = kept.loses_content;
            if let (Some(all), Some(kept)) = (&mut restored, kept.replayed) {
                all.issued = kept.issued;
            }
        }
        refuse_lost_reference(&encoded.warnings, body)?;
        let issued = restored.as_ref().map(|replayed| &replayed.issued);
        let mut looked = self.mended(to, &mut encoded, body, &target, issued)?;
        if loses_content || loses_setting(&encoded.warnings) || is_unrestored {
            looked.verdict = looked.verdict.max(Verdict::Degrade);
        }
        let (conversation, findings) =
            restored.map(|replayed| (replayed.conversation, replayed.findings)).unzip();
        story.parent = conversation.as_ref().and_then(|conversation| conversation.parent.clone());
        let verdict = looked.verdict;
        if self.gateway.mode != ReplayMode::Off {
            let account = story::account(&encoded, &findings.unwrap_or_default(), &looked);
            story.accounts(verdict.as_str(), &account);
        }
        self.refuse(&looked)?;
        Ok(Ready { encoded, verdict, conversation, tenant, target, stream, is_unrestored })
    }

    /// The request as it came, because the store cannot be read. Its answer is kept if the store works again by then.
    fn unrestored(
        &self,
        to: &dyn Codec,
        request: &Request,
        body: Option<&Tree>,
        reached: &Reached,
        end_user: Option<&str>,
    ) -> Result<Found, Problem> {
        let Read { call, tenant, .. } = self.read(request, body, reached)?;
        let conversation = Conversation::of(&call, &tenant, end_user);
        let encoded = to.encode(&call).map_err(|error| Problem::of_codec(&error))?;
        let issued = CapturedSeals::default();
        let loses_content = loses_content(&call, &encoded);
        let replayed = Some(Replayed { conversation, findings: Vec::new(), issued });
        Ok(Found { encoded, replayed, loses_content })
    }

    /// The target that a request reaches, and the tenant whose conversation it is. A gateway key decides the tenant; without one,
    /// a caller's own provider key does. The account is the caller's own wherever its key goes out.
    pub(crate) fn target(&self, reached: &Reached) -> (Target, Tenant) {
        let callers = self.caller.credential.as_ref().filter(|_| reached.is_callers);
        let callers = callers.map(|key| self.gateway.replay.claims().name_of_caller(key.reveal()));
        let account = callers.as_ref().unwrap_or(&reached.account);
        let tenant = callers.clone().filter(|_| !self.caller.admission.is_key());
        let tenant = tenant.map_or_else(|| self.caller.tenant.clone(), Tenant);
        (self.gateway.catalog.target(&reached.provider, &reached.model, account), tenant)
    }

    /// The request as a Call for whom it reaches. It is not parsed again where `body` is its body.
    pub(crate) fn read(
        &self,
        request: &Request,
        body: Option<&Tree>,
        reached: &Reached,
    ) -> Result<Read, Problem> {
        let catalog = &self.gateway.catalog;
        let (target, tenant) = self.target(reached);
        let is_same = target.origin.wire == self.wire;
        // What a caller of another dialect sends back was never this target's own.
        let source = if is_same {
            target.clone()
        } else {
            let row = catalog.default_provider(&self.wire);
            let row = row.ok_or_else(|| Problem::new(404, "nobody speaks this dialect"))?;
            catalog.target(&row, &reached.model, "caller")
        };
        let (codec, asked) = (speaker(&self.wire)?, Asked::of(source));
        let call = match body.filter(|body| body.is_of(&request.body)) {
            Some(body) => codec.decode_parsed(request, body, &asked),
            None => codec.decode_request(request, &asked),
        };
        let mut call = call.map_err(|error| Problem::of_codec(&error))?;
        call.target = target.clone();
        Ok(Read { call, target, tenant })
    }

    /// The request with what its caller had lost.
    pub(crate) async fn restored(
        &self,
        to: &dyn Codec,
        call: Call,
        end_user: Option<&str>,
        tenant: &Tenant,
    ) -> Result<Found, Problem> {
        let encode = |call: &Call| to.encode(call).map_err(|error| Problem::of_codec(&error));
        if self.gateway.mode == ReplayMode::Off {
            // What is ours goes to no provider, whatever the mode.
            let mut call = call;
            Claims::remove(&mut call, Why::ByPolicy);
            let encoded = encode(&call)?;
            let loses_content = loses_content(&call, &encoded);
            return Ok(Found { encoded, replayed: None, loses_content });
        }
        let passes = self.gateway.mode == ReplayMode::Observe && to.wire() == self.wire;
        let as_it_came = passes.then(|| call.clone());
        let restoring = self.gateway.replay.restore(tenant, end_user, call);
        let restored = timeout(LONGEST_RESTORE, restoring).await;
        let restored = restored.unwrap_or_else(|_| Err(too_slow()));
        self.gateway.operations.note_read(restored.as_ref().err());
        let restored = restored.map_err(|error| unreadable(&error))?;
        let mut encoded = encode(&restored.call)?;
        let loses_content = loses_content(&restored.call, &encoded);
        restored.account(&mut encoded);
        if let Some(mut call) = as_it_came {
            Claims::remove(&mut call, Why::ByPolicy);
            encoded = encode(&call)?;
        }
        let Restored { conversation, findings, issued, .. } = restored;
        let replayed = Some(Replayed { conversation, findings, issued });
        Ok(Found { encoded, replayed, loses_content })
    }

    /// Looks at what would be refused, and mends it where that is wanted.
    pub(crate) fn mended(
        &self,
        to: &dyn Codec,
        encoded: &mut Encoded,
        body: Option<&Tree>,
        target: &Target,
        issued: Option<&CapturedSeals>,
    ) -> Result<Looked, Problem> {
        let transcript = Transcript::of(to, &encoded.request);
        let issued = issued.map(|issued| issued as &dyn IssuedSeals);
        let transcript = Transcript { knows_headers: true, parsed: body, issued, ..transcript };
        let failed = |error: CodecError| Problem::of_codec(&error);
        match self.gateway.mode {
            ReplayMode::Off => Ok(Looked::at_nothing()),
            ReplayMode::Repair => {
                let repair = repair(&transcript, target, Reach::Refused).map_err(failed)?;
                let mut verdict = repair.audit.verdict();
                if !repair.mended.is_empty()
                    && recount(to, target, encoded, repair.request).map_err(failed)?
                {
                    verdict = verdict.max(Verdict::Degrade);
                }
                let mended = repair.mended;
                Ok(Looked { verdict, findings: repair.audit.findings, mended })
            }
            ReplayMode::Observe | ReplayMode::Enforce => {
                let looked = audit(&transcript, target).map_err(failed)?;
                let verdict = looked.verdict();
                Ok(Looked { verdict, findings: looked.findings, mended: Vec::new() })
            }
        }
    }

    /// Refuses what the provider would refuse, where that is wanted: with the rule, and how to mend it.
    fn refuse(&self, looked: &Looked) -> Result<(), Problem> {
        let is_enforced = self.gateway.mode == ReplayMode::Enforce;
        let gravest = looked.findings.first().filter(|_| looked.verdict == Verdict::Refuse);
        let Some(finding) = gravest.filter(|_| is_enforced) else { return Ok(()) };
        let mend = finding.mend.as_ref().map(|mend| format!(" ({})", mend.what));
        let mend = mend.unwrap_or_default();
        Err(Problem::new(400, format!("[{}] {}{mend}", finding.rule.id, finding.message)))
    }
}

/// Whether something of a Call other than reasoning of another owner is not in the request that was written for it.
fn loses_content(call: &Call, encoded: &Encoded) -> bool {
    let left_out: HashMap<&ItemId, Why> = encoded
        .fates
        .iter()
        .filter_map(|fate| match &fate.visible {
            Did::Elided(why) => Some((&fate.item, *why)),
            Did::Kept | Did::Restored(_) | Did::Reshaped(_) => None,
        })
        .collect();
    if left_out.is_empty() {
        return false;
    }
    let mut items = call.system.iter().chain(&call.items);
    items.any(|item| left_out.get(&item.id).is_some_and(|why| is_lost(item, *why)))
}

/// Whether leaving an Item out loses something. Thoughts go to their owners only, and a summary stands for what it covers.
fn is_lost(item: &Item, why: Why) -> bool {
    match &item.body {
        Body::Thought(_) => matches!(why, Why::Altered | Why::PrefixChanged),
        Body::Text(text) | Body::Summary { text, .. } => {
            why != Why::Covered && !text.trim().is_empty()
        }
        Body::Media(_)
        | Body::Call(_)
        | Body::Result(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Unknown => why != Why::Covered,
    }
}

/// Whether a setting was left out that changes what the model does or what it is shown.
fn loses_setting(warnings: &[Warning]) -> bool {
    warnings.iter().any(|warning| match &*warning.setting {
        "media" | "tool result" | "output" | "reasoning" | "container" => true,
        "tools" => warning.message.contains("left out"),
        _ => false,
    })
}

/// Refuses a request that names content which only another provider holds, such as a conversation: without it the model would
/// answer another question.
fn refuse_lost_reference(warnings: &[Warning], body: Option<&Tree>) -> Result<(), Problem> {
    const HELD: [&str; 6] = [
        "previous_response_id",
        "conversation",
        "prompt",
        "cachedContent",
        "cached_content",
        "thread",
    ];
    let is_named = |member: &str| {
        let value = body.and_then(|tree| tree.root().present(member));
        // A new thread holds nothing yet.
        value.is_some_and(|value| {
            member != "thread"
                || value.is_string()
                || value.members().any(|(key, value)| !key.is("type") && value.is_string())
        })
    };
    let lost = warnings
        .iter()
        .find(|warning| HELD.contains(&&*warning.setting) && is_named(&warning.setting));
    lost.map_or(Ok(()), |warning| {
        let member = &warning.setting;
        let message = format!(
            "`{member}` names content that only the provider which holds it can read: send that \
             content itself, or ask a model of that provider"
        );
        Err(Problem::new(400, message))
    })
}

/// Why no model is named.
fn unnamed(request: &Request) -> Problem {
    match Tree::parse(request.body.clone()) {
        Err(error) => Problem::new(400, format!("the body is not JSON: {error}")),
        Ok(_) => Problem::new(400, "the request names no model: say which one to ask"),
    }
}
