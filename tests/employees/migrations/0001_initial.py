import django.db.models.deletion
from django.db import migrations, models

KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Department",
            fields=[("id", KEY), ("title", models.CharField(max_length=100))],
        ),
        migrations.CreateModel(
            name="Employee",
            fields=[
                ("id", KEY.clone()),
                ("first_name", models.CharField(max_length=100)),
                ("last_name", models.CharField(max_length=100)),
                ("birthdate", models.DateField(blank=True, null=True)),
                (
                    "department",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="employees.department"
                    ),
                ),
            ],
        ),
    ]
