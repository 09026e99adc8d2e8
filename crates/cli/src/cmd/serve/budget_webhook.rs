//! Sends budget alerts to the configured URL.

use std::sync::Arc;

use throughline_json::{self as json, Json};
use throughline_server::{BudgetAlerts, Level, Log};
use throughline_trace::Webhook;

use crate::print::failure::{Failure, Result};

pub(super) struct BudgetWebhook {
    webhook: Webhook,
    log: Arc<dyn Log>,
}

impl BudgetWebhook {
    pub(super) fn start(url: &str, log: Arc<dyn Log>) -> Result<Self> {
        let failures = Arc::clone(&log);
        let webhook = Webhook::start(url, move |error| report(&*failures, &error.message));
        let webhook = webhook.map_err(|error| {
            Failure::BadData(format!("`budget_webhook` of [gateway] is not usable: {error}"))
        })?;
        Ok(Self { webhook, log })
    }
}

impl BudgetAlerts for BudgetWebhook {
    fn alert(&self, message: Json) {
        if !self.webhook.send(&message) {
            report(&*self.log, "too many alerts are waiting");
        }
    }
}

fn report(log: &dyn Log, problem: &str) {
    let line = json::object(|o| {
        o.string("event", "budget_webhook").string("problem", problem);
    });
    log.write(Level::Error, &line);
}
