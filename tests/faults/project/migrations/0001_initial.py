from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(db_index=True, max_length=100)),
                ("made", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="Note",
            fields=[
                (
                    "who",
                    models.CharField(max_length=100, primary_key=True, serialize=False),
                ),
                ("owner", models.CharField(max_length=150)),
                ("text", models.CharField(max_length=100)),
            ],
        ),
    ]
