//! Checks the rules of Converse that apply to all models.

use crate::audit::Finding;
use crate::claude::Inspection;
use crate::claude::view::ClaudeBlockKind;
use crate::converse::contract::{is_blank, rules};

pub(super) fn inspect(inspection: &mut Inspection<'_, '_, '_>) {
    check_blank_texts(inspection);
    check_empty_signatures(inspection);
}

fn check_blank_texts(inspection: &mut Inspection<'_, '_, '_>) {
    let view = inspection.view;
    for block in view.messages.iter().flat_map(|message| &message.blocks) {
        let Some(text) = block.text.filter(|_| block.kind == ClaudeBlockKind::Text) else {
            continue;
        };
        // Most texts are long, and a long text is assumed not to be blank.
        if text.raw().len() > 256 || !text.text().is_some_and(|text| is_blank(&text)) {
            continue;
        }
        let error = format!(
            "The text field in the ContentBlock object at {} is blank. Add text to the text field, and try again.",
            block.path()
        );
        let fix = inspection.removal_fix(&[block], "removes the blank text");
        let message =
            if text.is("") { "this text is empty" } else { "this text contains only white space" };
        let finding = Finding::at(&rules::BLANK_TEXT, text, message);
        inspection.report(block, finding.with_provider_error(error).with_auto_fix(fix));
    }
}

fn check_empty_signatures(inspection: &mut Inspection<'_, '_, '_>) {
    let view = inspection.view;
    for block in view.assistant_blocks().filter(|block| block.kind == ClaudeBlockKind::Thinking) {
        let Some(seal) = block.seal.filter(|seal| seal.is("")) else { continue };
        let message = "an empty signature is not accepted; the member must be absent";
        let finding = Finding::at(&rules::EMPTY_SIGNATURE, seal, message);
        inspection.report(block, finding.fixed_by_removing(seal, "removes the empty signature"));
    }
}
