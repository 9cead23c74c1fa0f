//! People who ask with kubectl.

use serde_json::{Value, json};
use testkit::kubectl;

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_create_shows_whose_a_token_is_without_any_flag() {
    let stage = Stage::get().await;
    let kubeconfig = stage.a.kubeconfig(&stage.product.address.access(&stage.caller));
    for member in [&stage.a, &stage.b, &stage.c] {
        let account = member.account("kubectl", "app").await;
        let token = member.token(&account).await;
        let file = stage.a.file(
            "tokenreview.yaml",
            &format!(
                "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec:\n  token: {token}\n"
            ),
        );
        let file = file.display().to_string();
        let printed = kubectl(&kubeconfig, &["create", "-f", &file, "-o", "yaml"]).await;
        let printed = printed.unwrap_or_else(|why| panic!("{why}"));
        let review: Value = serde_saphyr::from_str(&printed).expect("YAML");
        assert_eq!(review["status"]["authenticated"], true);
        let user = &review["status"]["user"];
        assert_eq!(user["uid"], json!(account.uid));
        let name = user["username"].as_str().expect("a name");
        assert!(name.ends_with(&account.user()), "{name}");
    }
}
