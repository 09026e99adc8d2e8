//! A person signs in at an identity provider, changes data, and signs out.

use serde_json::json;

use crate::console::driver::Browser;
use crate::console::{assert_only_complaint, check_both_themes};
use crate::sign_in::{SignInFixture, operator};

pub(super) fn check(browser: &Browser, axe: &str) {
    let fixture = SignInFixture::start("console-sign-in");
    fixture.provider.set_claims(operator());
    let console = format!("http://{}/#/playground", fixture.gateway.address);
    browser.open(&console);
    browser.wait("document.querySelector('input[name=key]')");
    browser.wait_for_text("Sign in with Example ID");
    check_both_themes(browser, "signin-provider", axe);
    let is_narrow = "document.documentElement.scrollWidth <= innerWidth";
    browser.resize(390, 844);
    browser.wait(is_narrow);
    browser.resize(1280, 900);
    browser.click("Sign in with Example ID");
    browser.click("Continue as Ada");
    // The page from which the person signed in opens again.
    browser.wait(&format!("location.href === {}", json!(console)));
    browser.wait_for_text("ada@example.org, operator");
    let cookie = browser.run("return document.cookie");
    assert_eq!(cookie, "", "scripts cannot read the session");
    // A change needs the token of the session, which the page requests.
    let created =
        "fetch('/v1/throughline/token').then((response) => response.json()).then(({ token }) =>
        fetch('/v1/throughline/keys', { method: 'POST', body: '{\"label\":\"ci\"}',
            headers: { 'content-type': 'application/json', 'x-throughline-token': token } })
            .then((response) => response.status === 200))";
    browser.wait(created);
    check_both_themes(browser, "signed-in", axe);
    browser.click("Sign out");
    browser.wait_for_text("Sign in with Example ID");
    browser.open("about:blank");
    browser.open(&console);
    browser.wait_for_text("Sign in with Example ID");
    assert_only_complaint(browser, "401");
    // A person without access reads why, and can return to the console.
    fixture.provider.set_claims(json!({"email": "eve@example.org", "email_verified": true}));
    browser.click("Sign in with Example ID");
    browser.click("Continue as Ada");
    browser.wait_for_text("eve@example.org has no access to this gateway");
    check_both_themes(browser, "signin-refused", axe);
    browser.click("Back to the console");
    browser.wait_for_text("Sign in with Example ID");
}
