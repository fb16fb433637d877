"""List prices of a date, and the cost of a stage: idle for a month, and for 1,000 queries.

python -m infra.costs           print the tables of docs/operate/costs.md
python -m infra.costs --check   exit with 1 when the document has others
python -m infra.costs --write   write them into the document
"""
