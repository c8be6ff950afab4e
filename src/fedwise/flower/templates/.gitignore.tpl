__pycache__/
*.db
*.db.releases/
*.parquet
result/
