"""The rules: each file is what one option switches on. `TABLE` of `plan/rule.py` lists them and
imports those that are on; cli, verbs and simulate import what they need of them. They import plan,
model, calendar, demand, kubelet, sizing, and the interface of queues. Pure."""
