//! Prepares a request for its provider: decode, restore lost reasoning, encode, audit and repair.

use std::collections::HashMap;
use std::time::Duration;

use throughline_codec::{
    AppendPlan, AuditOutcome, CallForms, Codec, DecodeContext, IssuedSeals, Preparation,
    PreparedCall, RepairLevel, Verdict, continuation_token,
};
use throughline_core::{
    Body, Call, Disposition, ElisionReason, EncodedRequest, Fate, Item, ItemId, Provider, Request,
    Stage, Target, Tenant, Warning,
};
use throughline_json::{Name, Tree};
use tokio::time::timeout;

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::compaction::{self, CompactionMethod};
use crate::gateway::dialect;
use crate::gateway::exchange::{Exchange, codec_for};
use crate::gateway::prefix;
use crate::gateway::references::ResolvedReferences;
use crate::gateway::removed_tools::RemovedTools;
use crate::gateway::repeated_results::remove_repeated_results;
use crate::gateway::{Gateway, ReplayMode};
use crate::routing::RouteTarget;
use crate::telemetry::store_timeout;
use crate::tenant_routes::read_routes;
use throughline_replay::{
    CapturedSeals, Claims, Conversation, Expansion, Finding, RestoredCall, StoredResponse,
};

/// Time limit for reading lost reasoning from the store.
pub(crate) const RESTORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a model name in an error message, in characters.
const SHOWN: usize = 200;

/// A decoded request with its target.
pub(crate) struct DecodedRequest {
    pub(crate) call: Call,
    pub(crate) target: Target,
    /// The tenant that owns the conversation.
    pub(crate) tenant: Tenant,
    /// Fates of the Items that were removed because the target's wire cannot express them.
    pub(crate) left_out: Vec<Fate>,
}

/// A request with its lost reasoning restored.
pub(crate) struct RestoredRequest {
    pub(crate) encoded: EncodedRequest,
    /// The matching conversation; `None` in the mode `off`.
    pub(crate) replayed: Option<ReplayContext>,
    /// Whether the encoded request omits content other than another owner's reasoning.
    pub(crate) loses_content: bool,
    /// The changes of the prompt that the request expresses in appended messages.
    pub(crate) appended: Option<AppendPlan>,
}

/// The conversation that a request belongs to, with the findings of the match and the unaltered
/// Seals.
pub(crate) struct ReplayContext {
    pub(crate) conversation: Conversation,
    pub(crate) findings: Vec<Finding>,
    /// Seals that are known to be exactly as their providers issued them.
    pub(crate) issued: CapturedSeals,
}

/// A request that is ready to be sent.
pub(crate) struct PreparedRequest {
    pub(crate) encoded: EncodedRequest,
    /// The verdict that the provider is expected to return.
    pub(crate) verdict: Verdict,
    pub(crate) conversation: Option<Conversation>,
    /// The tenant that owns the conversation.
    pub(crate) tenant: Tenant,
    pub(crate) target: Target,
    pub(crate) stream: bool,
    /// Whether restoring was skipped because the store could not be read.
    pub(crate) is_unrestored: bool,
    /// How the target compacts the conversation; `None` if the request is no compaction.
    pub(crate) compaction: Option<CompactionMethod>,
    /// The number of system messages that the gateway appended.
    pub(crate) appended: usize,
    /// The tools that replies must not call any more.
    pub(crate) removed_tools: RemovedTools,
    /// The forms of calls that the client's tools require in a translated reply.
    pub(crate) call_forms: CallForms,
}

impl Exchange<'_> {
    /// Returns the model that the request names; fails if the request names no model.
    pub(crate) fn requested_model(&self, request: &Request) -> GatewayResult<&Name> {
        self.model.as_ref().ok_or_else(|| match Tree::parse(request.body.clone()) {
            Err(error) => GatewayError::new(400, format!("the body is not JSON: {error}")),
            Ok(_) => GatewayError::new(400, "the request does not specify a model"),
        })
    }

    /// Resolves a model name to its targets, in the order they are tried, if the caller may use the
    /// model.
    pub(crate) async fn reach(&self, model: &str) -> GatewayResult<Vec<RouteTarget>> {
        if !self.caller.admission.allows(model) {
            // The message is logged, and a client can send a name of any length.
            let model: String = model.chars().take(SHOWN).collect();
            return Err(GatewayError::new(403, format!("this key may not use model {model}")));
        }
        let all = match self.gateway.directory.reach(model) {
            Ok(all) => all,
            Err(message) => self.tenant_targets(model, message).await?,
        };
        // The paths of these APIs contain the model name, which must not lead to another path.
        let is_path = |reached: &RouteTarget| {
            let Provider { wire, dialect, .. } = &*reached.provider;
            (matches!(wire.as_str(), "gemini" | "bedrock-converse") || dialect.model_in_path)
                && (reached.model.contains(['\\', '?', '#', '%']) || reached.model.contains(".."))
        };
        if all.iter().any(is_path) {
            return Err(GatewayError::new(404, format!("there is no model `{model}`")));
        }
        Ok(all)
    }

    /// Returns the targets of a route of the caller's tenant, or the error `unknown`.
    async fn tenant_targets(
        &self,
        model: &str,
        unknown: String,
    ) -> GatewayResult<Vec<RouteTarget>> {
        let Gateway { replay, directory, .. } = self.gateway;
        let routes = read_routes(replay.store(), &self.caller.tenant).await?;
        let Some(targets) = routes.get(model) else { return Err(GatewayError::new(404, unknown)) };
        let reached = targets.iter().filter_map(|target| directory.reach(target).ok()).flatten();
        let reached: Vec<RouteTarget> = reached.collect();
        if reached.is_empty() {
            let message = format!("the route `{model}` has no target that is still configured");
            return Err(GatewayError::new(404, message));
        }
        Ok(reached)
    }

    /// Prepares a request for one target. `request` may differ from the request as received.
    pub(crate) async fn prepare(
        &self,
        request: Request,
        resumed: Option<(&StoredResponse, Request)>,
        reached: &RouteTarget,
    ) -> GatewayResult<Box<PreparedRequest>> {
        if resumed.is_none() && self.passes_unchanged(&request, reached) {
            return Ok(Box::new(self.pass_through(request, reached)));
        }
        let decoding = Box::pin(self.prepare_decoded(request, resumed, reached));
        decoding.await.map(Box::new)
    }

    /// Prepares a request that must be decoded.
    async fn prepare_decoded(
        &self,
        request: Request,
        mut resumed: Option<(&StoredResponse, Request)>,
        reached: &RouteTarget,
    ) -> GatewayResult<PreparedRequest> {
        let (request, mut left_out) =
            Box::pin(self.without_foreign_compactions(request, reached)).await?;
        if let Some((_, full_request)) = &mut resumed {
            let expanding = self.without_foreign_compactions(full_request.clone(), reached);
            (*full_request, left_out) = Box::pin(expanding).await?;
        }
        let full_request = resumed.as_ref().map_or(&request, |(_, full_request)| full_request);
        let references = Box::pin(self.resolve_references(full_request, reached)).await?;
        let found = references.as_ref().filter(|_| self.compaction.is_none());
        if let Some(ResolvedReferences { with_ids, .. }) = found {
            // Later requests continue from these items, even if their response is deleted.
            let model = self.requested_model(&request)?;
            let expanded = Request { body: with_ids.clone(), ..request.clone() };
            let expanded = dialect::renamed(&self.wire, expanded, &reached.model, model);
            self.scope.record().texts.expanded = expanded.body;
        }
        let full_request =
            references.as_ref().map_or(full_request, |references| &references.expanded);
        let DecodedRequest { call, target, tenant, left_out: repeated } =
            self.decode(full_request, reached)?;
        left_out.extend(repeated);
        self.scope.record().tenant = tenant.clone();
        let to = codec_for(&target.origin.wire)?;
        let stream = call.stream;
        let is_translated = target.origin.wire != self.wire;
        let call_forms = if is_translated { CallForms::of(&call) } else { CallForms::default() };
        let is_resumed = resumed.is_some();
        let (mut found, is_unrestored) =
            self.restore_or_pass(to, call, &tenant, full_request, is_resumed, reached).await?;
        if prefix::has_prefix_change(&found.encoded) {
            let again =
                Box::pin(self.restore_prefix(to, found, full_request, reached, &tenant)).await?;
            found = again.0;
            self.scope.record().prefix_changed = again.1;
        }
        let RestoredRequest {
            mut encoded,
            replayed: mut restored,
            mut loses_content,
            mut appended,
        } = found;
        if resumed.as_ref().is_some_and(|(stored, _)| stored.is_stored_at(&target)) {
            // The target stores the conversation, so only the new items are sent.
            let new = Box::pin(self.resolve_references(&request, reached)).await?;
            let new = new.as_ref().map_or(&request, |references| &references.for_target);
            let DecodedRequest { mut call, .. } = self.decode(new, reached)?;
            Claims::remove(&mut call, ElisionReason::Foreign);
            encoded = to.encode(&call)?;
            appended = None;
        } else if let Some(references) = references.filter(|found| found.has_kept_items) {
            // The target resolves references to the items that it stores.
            let DecodedRequest { call, .. } = self.decode(&references.for_target, reached)?;
            let kept = Box::pin(self.restore_and_encode(to, call, &tenant)).await?;
            encoded = kept.encoded;
            loses_content = kept.loses_content;
            appended = kept.appended;
            if let (Some(all), Some(kept)) = (&mut restored, kept.replayed) {
                all.issued = kept.issued;
            }
        }
        encoded.fates.extend(left_out);
        refuse_lost_reference(&encoded.warnings, self.body.as_ref())?;
        let issued = restored.as_ref().map(|replayed| &replayed.issued);
        let PreparedCall { encoded, outcome: mut looked } =
            self.audit_and_repair(to, encoded, &target, issued)?;
        if loses_content || loses_setting(&encoded.warnings) || is_unrestored {
            looked.verdict = looked.verdict.max(Verdict::Degrade);
        }
        let (conversation, findings) =
            restored.map(|replayed| (replayed.conversation, replayed.findings)).unzip();
        let verdict = looked.verdict;
        let plan = appended.as_ref();
        let appended = plan.map(|plan| plan.locate(&encoded.request.body)).unwrap_or_default();
        let removed_tools = plan.map(|plan| plan.removed_tools.clone()).unwrap_or_default();
        let report = (self.gateway.mode != ReplayMode::Off).then(|| {
            let findings = findings.unwrap_or_default();
            throughline_replay::report_json(&encoded, &findings, &looked, &appended)
        });
        {
            let mut record = self.scope.record();
            record.parent = conversation.as_ref().and_then(|it: &Conversation| it.parent.clone());
            record.verdict = Some(verdict);
            record.texts.account = report.map(|report| report.bytes().clone()).unwrap_or_default();
        }
        self.refuse(&looked)?;
        Ok(PreparedRequest {
            encoded,
            verdict,
            conversation,
            tenant,
            target,
            stream,
            is_unrestored,
            compaction: None,
            appended: appended.len(),
            removed_tools: RemovedTools(removed_tools),
            call_forms,
        })
    }

    /// Restores and encodes a request. If the store cannot be read, a request that does not need
    /// the store is encoded as received; the second value is then `true`.
    pub(crate) async fn restore_or_pass(
        &self,
        to: &dyn Codec,
        call: Call,
        tenant: &Tenant,
        request: &Request,
        is_resumed: bool,
        reached: &RouteTarget,
    ) -> GatewayResult<(RestoredRequest, bool)> {
        let operations = &self.gateway.operations;
        let needs_store = is_resumed
            || !self.is_plain(&request.body) && Claims::contains_handles(&request.body)
            // Only the store knows which caller received the token.
            || continuation_token(&call).is_some();
        let may_pass = !needs_store && operations.passes_without_store();
        let is_off = self.gateway.mode == ReplayMode::Off;
        let found = if may_pass && !is_off && operations.is_read_failing() {
            // The request does not wait for a store that may hang.
            Err(store_timeout().into())
        } else {
            self.restore_and_encode(to, call, tenant).await
        };
        match found {
            Err(problem) if problem.is_of_store && may_pass => {
                let encoded = Box::pin(self.encode_unrestored(to, request, reached)).await?;
                Ok((encoded.ok_or(problem)?, true))
            }
            found => Ok((found?, false)),
        }
    }

    /// Prepares the request as received, because the store cannot be read. Returns `None` if the
    /// request contains reasoning whose issuer or prefix is not known without the store. The reply
    /// is still captured if the store has recovered when the reply ends.
    async fn encode_unrestored(
        &self,
        to: &dyn Codec,
        request: &Request,
        reached: &RouteTarget,
    ) -> GatewayResult<Option<RestoredRequest>> {
        let DecodedRequest { mut call, tenant, .. } = self.decode(request, reached)?;
        // In the mode `observe`, the target of the caller's wire receives all Seals.
        let passes = self.gateway.mode == ReplayMode::Observe && to.wire() == self.wire;
        if !passes && !self.gateway.replay.set_known_issuers(&tenant, &mut call) {
            return Ok(None);
        }
        // The request contains no Claims, so this does not read from the store.
        let expansion = self.expand_compactions(&mut call, &tenant).await?;
        let conversation = Conversation::of(&call, &tenant, self.end_user.as_deref());
        let mut encoded = to.encode(&call)?;
        if prefix::has_prefix_change(&encoded) {
            // Only the store contains the prefix to which the Seals are bound.
            return Ok(None);
        }
        expansion.account(&mut encoded);
        let issued = CapturedSeals::default();
        let loses_content = loses_content(&call, &encoded);
        let replayed = Some(ReplayContext { conversation, findings: Vec::new(), issued });
        Ok(Some(RestoredRequest { encoded, replayed, loses_content, appended: None }))
    }

    /// Returns the target of a request and the tenant that owns the conversation. A gateway key
    /// determines the tenant; without a gateway key, the caller's own provider key does. If the
    /// caller's key is sent to the provider, the target's account is the caller's own account.
    pub(crate) fn target(&self, reached: &RouteTarget) -> (Target, Tenant) {
        let callers = self.caller.credential.as_ref().filter(|_| reached.is_callers);
        let callers = callers.map(|key| self.gateway.replay.claims().caller_tenant(key.reveal()));
        let account = callers.as_ref().unwrap_or(&reached.account);
        let tenant = callers.clone().filter(|_| !self.caller.admission.is_key());
        let tenant = tenant.map_or_else(|| self.caller.tenant.clone(), Tenant);
        (self.catalog.target(&reached.provider, &reached.model, account), tenant)
    }

    /// Decodes a request into a Call for its target. A body that is unchanged since it was received
    /// is not parsed again.
    pub(crate) fn decode(
        &self,
        request: &Request,
        reached: &RouteTarget,
    ) -> GatewayResult<DecodedRequest> {
        let catalog = &self.catalog;
        let (target, tenant) = self.target(reached);
        let is_same = target.origin.wire == self.wire;
        // Content that a caller returns in another dialect never belonged to this target.
        let source = if is_same {
            target.clone()
        } else {
            let row = catalog.default_provider(&self.wire);
            let row = row.ok_or_else(|| {
                let message = format!(
                    "no known provider uses the {} API; add one in throughline.toml",
                    self.wire
                );
                GatewayError::new(404, message)
            })?;
            catalog.target(&row, &reached.model, "caller")
        };
        let (codec, mut context) = (codec_for(&self.wire)?, DecodeContext::of(source));
        let parsed = self.body.as_ref().filter(|body| body.indexes(&request.body));
        let mut call = Stage::Parse.run(|| match parsed {
            Some(body) => {
                context.known = self.known.take_beginning();
                let call = codec.decode_parsed(request, body, &context)?;
                self.known.keep(&self.wire, body, &context.target, &call);
                Ok(call)
            }
            None => codec.decode_request(request, &context),
        })?;
        call.extras.extend(compaction::anthropic_extra(request, &target.origin.wire));
        call.target = target.clone();
        let left_out = if is_same { Vec::new() } else { remove_repeated_results(&mut call.items) };
        Ok(DecodedRequest { call, target, tenant, left_out })
    }

    /// Restores the reasoning that the caller dropped, and encodes the request.
    pub(crate) async fn restore_and_encode(
        &self,
        to: &dyn Codec,
        mut call: Call,
        tenant: &Tenant,
    ) -> GatewayResult<RestoredRequest> {
        let expansion = self.expand_compactions(&mut call, tenant).await?;
        if self.gateway.mode == ReplayMode::Off {
            if self.caller.admission.is_key() && continuation_token(&call).is_some() {
                let message = "`continuationToken` is not accepted from a gateway key if `replay` \
                               is `off`, because the gateway does not record which caller \
                               received the token: start the response again without a token";
                return Err(GatewayError::new(400, message));
            }
            // Claims belong to the gateway and are never sent to a provider, whatever the mode.
            Claims::remove(&mut call, ElisionReason::ByPolicy);
            let mut encoded = Stage::Encode.run(|| to.encode(&call))?;
            let loses_content = loses_content(&call, &encoded) || expansion.has_losses();
            expansion.account(&mut encoded);
            let (replayed, appended) = (None, None);
            return Ok(RestoredRequest { encoded, replayed, loses_content, appended });
        }
        let passes = self.gateway.mode == ReplayMode::Observe && to.wire() == self.wire;
        let as_it_came = passes.then(|| call.clone());
        // Boxed, because the future takes several kilobytes and is moved several times.
        let restoring = self.gateway.replay.restore(tenant, self.end_user.as_deref(), call);
        let restoring = Box::pin(restoring);
        let restored = timeout(RESTORE_TIMEOUT, Stage::Restore.run_async(restoring)).await;
        let restored = restored.unwrap_or_else(|_| Err(store_timeout()));
        self.gateway.operations.record_cached_read(restored.as_ref().err());
        let (restored, has_losses) = (restored?, expansion.has_losses());
        let observed = match as_it_came {
            Some(mut call) => {
                Claims::remove(&mut call, ElisionReason::ByPolicy);
                let mut encoded = to.encode(&call)?;
                expansion.account(&mut encoded);
                Some(encoded)
            }
            None => None,
        };
        let restored = restored.with_expansion(expansion);
        if restored.has_foreign_token && self.caller.admission.is_key() {
            // All tenants share the provider's account, so only the gateway can tell them apart.
            let message = "`continuationToken` was not issued to this caller: send a token from a \
                           response to the same key, or start the response again without a token";
            return Err(GatewayError::new(400, message));
        }
        let mut encoded = Stage::Encode.run(|| to.encode(&restored.call))?;
        let mut appended = None;
        if !passes
            && let Some((kept, plan)) =
                Box::pin(self.append_changes(to, &restored, &encoded, tenant)).await?
        {
            (encoded, appended) = (kept, Some(plan));
        }
        let loses_content = loses_content(&restored.call, &encoded) || has_losses;
        restored.account(&mut encoded);
        encoded = observed.unwrap_or(encoded);
        let RestoredCall { conversation, findings, issued, .. } = restored;
        let replayed = Some(ReplayContext { conversation, findings, issued });
        Ok(RestoredRequest { encoded, replayed, loses_content, appended })
    }

    /// Replaces compaction items that contain a Claim. A Claim that was issued to another caller is
    /// refused, because the model would answer without the conversation.
    async fn expand_compactions(
        &self,
        call: &mut Call,
        tenant: &Tenant,
    ) -> GatewayResult<Expansion> {
        let expanding = self.gateway.replay.expand(tenant, self.end_user.as_deref(), call);
        let expansion = timeout(RESTORE_TIMEOUT, Stage::Restore.run_async(expanding)).await;
        let expansion = expansion.unwrap_or_else(|_| Err(store_timeout()))?;
        if expansion.has_foreign() {
            let message = "The encrypted content of a compaction item could not be verified: it \
                           was not issued to this caller. Remove the item, or send the \
                           conversation itself.";
            let code = Some(("input", "invalid_encrypted_content"));
            return Err(GatewayError { code, ..GatewayError::new(400, message) });
        }
        Ok(expansion)
    }

    /// Checks whether the provider would refuse the request, and repairs it in the mode `repair`.
    pub(crate) fn audit_and_repair(
        &self,
        to: &dyn Codec,
        encoded: EncodedRequest,
        target: &Target,
        issued: Option<&CapturedSeals>,
    ) -> GatewayResult<PreparedCall> {
        let level = match self.gateway.mode {
            ReplayMode::Off => {
                return Ok(PreparedCall { encoded, outcome: AuditOutcome::skipped() });
            }
            ReplayMode::Repair => Some(RepairLevel::Refused),
            ReplayMode::Observe | ReplayMode::Enforce => None,
        };
        let issued = issued.map(|issued| issued as &dyn IssuedSeals);
        let parsed = self.body.as_ref();
        let preparation = Preparation { level, parsed, issued, ..Preparation::new(to, target) };
        Ok(Stage::Audit.run(|| preparation.check(encoded))?)
    }

    /// In the mode `enforce`, refuses a request that the provider would refuse. The error names the
    /// rule and the fix.
    fn refuse(&self, looked: &AuditOutcome) -> GatewayResult<()> {
        let is_enforced = self.gateway.mode == ReplayMode::Enforce;
        let gravest = looked.findings.first().filter(|_| looked.verdict == Verdict::Refuse);
        let Some(finding) = gravest.filter(|_| is_enforced) else { return Ok(()) };
        let fix = finding.auto_fix.as_ref().map(|fix| format!(" ({})", fix.what));
        let fix = fix.unwrap_or_default();
        let (rule, message) = (finding.rule, &finding.message);
        Err(GatewayError::new(400, format!("[{}] {message}{fix}; see {}", rule.id, rule.url())))
    }
}

/// Returns whether the encoded request lacks content of its Call, apart from another owner's
/// reasoning.
fn loses_content(call: &Call, encoded: &EncodedRequest) -> bool {
    let left_out: HashMap<&ItemId, ElisionReason> = encoded
        .fates
        .iter()
        .filter_map(|fate| match &fate.visible {
            Disposition::Elided(why) => Some((&fate.item, *why)),
            Disposition::Kept | Disposition::Restored(_) | Disposition::Reshaped(_) => None,
        })
        .collect();
    if left_out.is_empty() {
        return false;
    }
    let mut items = call.system.iter().chain(&call.items);
    items.any(|item| left_out.get(&item.id).is_some_and(|why| is_lost(item, *why)))
}

/// Returns whether omitting an Item loses content. Another owner's Thoughts and the Items that a
/// summary covers do not count as lost.
fn is_lost(item: &Item, why: ElisionReason) -> bool {
    if matches!(item.body, Body::Thought(_)) {
        return matches!(why, ElisionReason::Altered | ElisionReason::PrefixChanged);
    }
    let is_blank = matches!(&item.body, Body::Text(text) | Body::Summary { text, .. } if text.trim().is_empty());
    why != ElisionReason::Covered && !is_blank
}

/// Returns whether encoding omitted a setting that changes the model's behaviour or input.
fn loses_setting(warnings: &[Warning]) -> bool {
    warnings.iter().any(|warning| match &*warning.setting {
        "media" | "tool result" | "output" | "reasoning" | "container" => true,
        "tools" => warning.message.contains("left out"),
        _ => false,
    })
}

/// Refuses a request that refers to content stored at another provider, such as a conversation.
/// Without that content, the model would respond to a different question.
fn refuse_lost_reference(warnings: &[Warning], body: Option<&Tree>) -> GatewayResult<()> {
    const HELD: [&str; 8] = [
        "previous_response_id",
        "conversation",
        "prompt",
        "cachedContent",
        "cached_content",
        "continuationToken",
        "continuation_token",
        "thread",
    ];
    let is_named = |member: &str| {
        let value = body.and_then(|tree| tree.root().present(member));
        // A new thread has no content yet.
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
            "`{member}` refers to content that only the provider storing it can read: send the \
             content itself, or use a model of that provider"
        );
        Err(GatewayError::new(400, message))
    })
}
