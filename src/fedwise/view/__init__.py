"""View: how selections, pools, runs and audits are shown. Report and explorer draw with it."""
