//! Requests that go on from a response, and what is asked of responses by their ids.

use bytes::Bytes;
use throughline_core::{Name, Request, Tree, Wire, json};

use crate::dialect::Wanted;
use crate::exchange::{Exchange, Problem};
use crate::gateway::{Answered, ReplayMode};
use crate::replay::Claims;
use crate::stored::{self, Listing, Named, PREVIOUS, Stored, Wish};
use crate::story::Story;
use crate::telling::unreadable;

/// What a request goes on from.
pub(crate) enum Resumed {
    /// Nothing: it says all of the conversation itself.
    Nothing,
    /// A response that was kept here, with the request as if its caller had sent all of the conversation.
    From(Box<Stored>, Bytes),
    /// A response that was not kept here. Its provider may know it, if the caller received it from there.
    Unknown(Name),
}

impl Resumed {
    /// What is to be sent to somebody who speaks that wire, if not what came.
    pub(crate) fn at(&self, wire: &Wire) -> Result<Option<(&Stored, &Bytes)>, Problem> {
        match self {
            Resumed::Nothing => Ok(None),
            Resumed::From(stored, whole) => Ok(Some((stored, whole))),
            Resumed::Unknown(_) if *wire == Wire::OPENAI_RESPONSES => Ok(None),
            Resumed::Unknown(id) => Err(no_previous(id)),
        }
    }
}

impl Exchange<'_> {
    /// A response that another provider gave, with what OpenAI's say of their request.
    pub(crate) fn echoed(&self, shown: Bytes, asked: &Request) -> Bytes {
        if self.wire != Wire::OPENAI_RESPONSES {
            return shown;
        }
        let echoed = stored::echoed(&shown, &asked.body);
        echoed.map_or(shown, |echoed| echoed.bytes().clone())
    }

    /// What the request goes on from; and whether its response is kept, which its story heeds.
    pub(crate) async fn resumed(
        &self,
        request: &Request,
        body: Option<&Tree>,
        end_user: Option<&str>,
        story: &mut Story,
    ) -> Result<Resumed, Problem> {
        if self.wire != Wire::OPENAI_RESPONSES {
            return Ok(Resumed::Nothing);
        }
        let wish = body.map(Wish::of).unwrap_or_default();
        if self.gateway.mode == ReplayMode::Off {
            // What is ours goes to no provider, whatever the mode.
            let ours = wish.previous.filter(|id| Claims::is_response(id));
            return ours.map_or(Ok(Resumed::Nothing), |id| Err(no_previous(&id)));
        }
        story.keeps_response = wish.keeps;
        let Some(id) = wish.previous else { return Ok(Resumed::Nothing) };
        let replay = &self.gateway.replay;
        let named = stored::find(replay, &self.tenants(), &id).await;
        let stored = match named.map_err(|error| unreadable(&error))? {
            Named::Here(stored) if stored.is_of(end_user) => stored,
            Named::Unknown if !Claims::is_response(&id) => return Ok(Resumed::Unknown(id)),
            Named::Here(_) | Named::Gone | Named::Unknown => return Err(no_previous(&id)),
        };
        let whole = stored.unfolded(replay, &request.body).await;
        let whole = whole.ok_or_else(|| no_previous(&id))?;
        story.texts.whole = whole.clone();
        Ok(Resumed::From(stored, whole))
    }

    /// Answers a request for a response by its id. One that was not kept here may be the provider's.
    pub(crate) async fn response(
        &self,
        id: &str,
        wanted: Wanted,
        method: &str,
        request: Request,
    ) -> Result<Answered, Problem> {
        let replay = &self.gateway.replay;
        let named = stored::find(replay, &self.tenants(), id).await;
        let stored = match named.map_err(|error| unreadable(&error))? {
            // Where a caller says whom it asks for, others' responses are not there.
            Named::Here(stored)
                if self.caller.end_user.as_deref().is_none_or(|user| stored.is_of(Some(user))) =>
            {
                stored
            }
            Named::Unknown if !Claims::is_response(id) && self.has_own_provider() => {
                return self.other(method, request).await;
            }
            Named::Here(_) | Named::Gone | Named::Unknown => return Err(no_response(id)),
        };
        let said = match wanted {
            Wanted::Itself => stored.response(),
            Wanted::Input => {
                let query = request.path.split_once('?').map_or("", |(_, query)| query);
                let listing = Listing::of(query).map_err(|problem| Problem::new(400, problem))?;
                let input = stored.input(replay).await;
                input.map(|input| stored::list(&stored.node, &input, &listing))
            }
            Wanted::Deletion => {
                let log = stored::log_of(&stored.node);
                let deleted = replay.store().forget_run(&stored.tenant, &log).await;
                deleted.map_err(|error| unreadable(&error))?;
                Some(json::object(|o| {
                    o.string("id", id).string("object", "response").bool("deleted", true);
                }))
            }
        };
        said.map(|said| Answered::json(200, &said)).ok_or_else(|| no_response(id))
    }

    fn has_own_provider(&self) -> bool {
        self.gateway.directory.of_wire(&self.wire).is_some()
    }
}

/// The error for a response that cannot be continued, in OpenAI's own words.
pub(crate) fn no_previous(id: &str) -> Problem {
    let message = format!("Previous response with id '{id}' not found.");
    let code = Some((PREVIOUS, "previous_response_not_found"));
    Problem { code, ..Problem::new(404, message) }
}

fn no_response(id: &str) -> Problem {
    Problem::new(404, format!("Response with id '{id}' not found."))
}
